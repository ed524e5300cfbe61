"""Properties of normalisation and of the tokenizer."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingon.errors import BundleError
from lingon.text import BOS, EOS, PAD, UNK, LanguageTokens, Tokenizer, normalise
from tests.support.tokenizers import train_sentencepiece

LINES = ["the cow sees the green grass", "die Kuh sieht das grüne Gras", "Tom lives in Boston.", "ab cd ef gh ij kl"]
SPECIALS = "\u0000\u0009\u000a\u00ad\u00a0\u200b\u200d\u2060\u2028\u2066\u3000\ufeff\u0301\u0308e\u1100\u1161 "
ANY_TEXT = st.one_of(st.text(), st.text(alphabet=SPECIALS + "abü漢😀"))
WITHOUT_SPACE_SIGN = ANY_TEXT.map(lambda text: normalise(text.replace("\u2581", "")))  # it is sentencepiece's space


def train(lines: list[str], kind: str, **ids: int) -> bytes:
    return train_sentencepiece(lines, 310, model_type=kind, hard_vocab_limit=False, byte_fallback=True, **ids)


UNIGRAM, BPE = (Tokenizer(train(LINES * 5, kind)) for kind in ("unigram", "bpe"))
both_kinds = pytest.mark.parametrize("tokenizer", [UNIGRAM, BPE], ids=["unigram", "bpe"])


@given(ANY_TEXT)
@example("e\u200b\u0301")
def test_normalising_again_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(ANY_TEXT)
@example("e\u00ad\u0308")
def test_normalised_text_is_nfc_in_words_between_single_spaces(text: str) -> None:
    found = normalise(text)
    assert unicodedata.is_normalized("NFC", found)
    assert found == " ".join(found.split())


@given(ANY_TEXT)
def test_two_ways_to_write_the_same_characters_normalise_alike(text: str) -> None:
    assert normalise(unicodedata.normalize("NFD", text)) == normalise(text)


def test_joiners_stay_and_invisible_controls_go() -> None:
    assert normalise("\ufeffSchiff\u00adfahrt\u200b 👩\u200d🚀 \u2067\tx\u00a0y\n") == "Schifffahrt 👩\u200d🚀 x y"


@both_kinds
@given(text=WITHOUT_SPACE_SIGN)
def test_decoding_what_was_encoded_gives_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode_target(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == text
    assert UNK not in ids


@both_kinds
@given(text=WITHOUT_SPACE_SIGN)
def test_pieces_name_every_id_and_join_to_the_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode_source(text)
    assert ids[-1] == EOS
    assert tokenizer.source.decode_pieces(tokenizer.source_pieces(ids[:-1])) == text
    ids = tokenizer.encode_target(text)
    assert tokenizer.target.decode_pieces(tokenizer.target_pieces(ids)) == text


def test_a_tokenizer_is_read_back_from_its_files(tmp_path: Path) -> None:
    joint, separate = UNIGRAM, Tokenizer(*UNIGRAM.files().values(), *BPE.files().values())
    for number, tokenizer in enumerate((joint, separate)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, content in tokenizer.files().items():
            (folder / name).write_bytes(content)
        again = Tokenizer.read(folder)
        assert (again.files(), again.joint) == (tokenizer.files(), tokenizer is joint)
        assert again.encode_source("the cow") == tokenizer.encode_source("the cow")
        assert again.encode_target("die Kuh") == tokenizer.encode_target("die Kuh")
    assert (joint.source_vocab, joint.target_vocab) == (UNIGRAM.target_vocab, UNIGRAM.target_vocab)


def test_files_that_are_no_tokenizer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"tokenizer\.model"):
        Tokenizer.read(tmp_path)
    for content in (b"not a model", b""):
        (tmp_path / "tokenizer.model").write_bytes(content)
        with pytest.raises(BundleError, match=r"tokenizer\.model: not a sentencepiece model") as caught:
            Tokenizer.read(tmp_path)
        assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("count", [1, 2], ids=["once", "twice, which sentencepiece refuses by its bytes"])
def test_a_model_with_a_piece_that_is_not_utf_8_is_refused(count: int) -> None:
    """The bytes stand for letters that are pieces of their own."""
    model = train(LINES * 5, "unigram")
    for letter in ("a", "e")[:count]:
        piece = b"\n\x01" + letter.encode()
        assert piece in model
        model = model.replace(piece, b"\n\x01\xff")
    with pytest.raises(BundleError, match=r"^tokenizer\.model: not a sentencepiece model \(a piece is not UTF-8\)$"):
        Tokenizer(model)


def test_a_model_with_other_special_ids_is_refused(tmp_path: Path) -> None:
    """The second model has the default special ids of `spm_train`."""
    (tmp_path / "source.model").write_bytes(train(LINES * 5, "unigram"))
    (tmp_path / "target.model").write_bytes(train(LINES * 5, "unigram", pad_id=-1, bos_id=1, eos_id=2, unk_id=0))
    with pytest.raises(BundleError) as caught:
        Tokenizer.read(tmp_path)
    wanted = "its special ids must be pad 0, bos 1, eos 2, unk 3, got pad -1, bos 1, eos 2, unk 0"
    assert str(caught.value) == f"{tmp_path}/target.model: {wanted}"


@given(text=WITHOUT_SPACE_SIGN, source_end=st.booleans(), before=st.booleans(), after=st.booleans())
def test_the_pieces_of_a_framed_source_are_those_of_its_text(
    text: str, source_end: bool, before: bool, after: bool
) -> None:
    languages = LanguageTokens((7,) * before, (8,) * after)
    tokenizer = UNIGRAM.for_languages(languages).with_source_end(source_end=source_end)
    pieces, ids = UNIGRAM.encode_target(text), tokenizer.encode_source(text)
    assert tokenizer.unframed(ids) == pieces
    assert ids[: len(languages.before)] == [*languages.before]
    assert ids[len(ids) - len(languages.after) :] == [*languages.after]
    assert tokenizer.without_languages(ids) == ([*pieces, EOS] if source_end or not pieces else pieces)
    assert UNIGRAM.source_end
