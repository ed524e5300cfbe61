"""Properties of normalisation and of the tokenizer."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingon import NormalisedText
from lingon.errors import BundleError, LingonError
from lingon.text import BOS, EOS, LONGEST, PAD, SURE, UNK, LanguageTokens, Tokenizer, normalise, sentences, split
from tests.support.repository import ROOT
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
    with pytest.raises(BundleError, match=r"^tokenizer\.model: .*UTF-8"):
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


PROTO = (ROOT / "protos" / "lingon" / "translation" / "v1" / "translation.proto").read_text(encoding="utf-8")
EVERY_CHARACTER = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
INVISIBLE = "\u0000\u001b\u0084\u00ad\u200b\u202e\u2060\u2066\ufeff"
WHITE = " \t\n\u001c\u001f\u0085\u00a0\u2028\u3000"
JOINING = "e=\u0301\u0308\u0323\u0338\u0344\u0f71\u0f73\u0f74\u1100\u1161\u11a8\uac00\u09c7\u09be\u212b\ufb2a"
TEXTS = st.one_of(st.text(), st.text(alphabet=INVISIBLE + WHITE + JOINING + "abc漢😀", max_size=40))


def listed(step: str) -> str:
    """The characters that a step of the header of the proto file names, as U+XXXX or U+XXXX to U+XXXX."""
    header = PROTO.partition('syntax = "proto3"')[0].replace("\n// ", " ")
    text = header.partition(f" {step}. ")[2].partition(f" {int(step) + 1}. ")[0]
    found = re.findall(r"U\+([0-9A-F]{4})(?: to U\+([0-9A-F]{4}))?", text)
    return "".join(chr(code) for low, high in found for code in range(int(low, 16), int(high or low, 16) + 1))


REMOVED, WHITE_SPACE = listed("1"), listed("3")


def by_contract(text: str) -> str:
    """The normalised text as a client makes it that has read the proto file only."""
    visible = "".join(character for character in text if character not in REMOVED)
    composed = unicodedata.normalize("NFC", visible)
    return re.sub(f"[{re.escape(WHITE_SPACE)}]+", " ", composed).strip(" ")


def test_the_contract_names_every_character_that_is_removed_or_white_space():
    removed = [each for each in EVERY_CHARACTER if normalise(f"a{each}b") == "ab"]
    white = [each for each in EVERY_CHARACTER if normalise(f"a{each}b") == "a b"]
    assert (removed, white) == (sorted(REMOVED), sorted(WHITE_SPACE))


@given(TEXTS)
@example("a\u001cb\u0085c")
@example(" \ufeffa\u00ad\u0301\u200b \u2060 b")
def test_a_client_that_follows_the_contract_has_the_normalised_text_of_the_server(text: str):
    assert by_contract(text) == normalise(text)


@given(TEXTS)
@example("=\u0f73\u0338")
@example("\u1100\u00ad\u1161\u11a8")
@example("\u09c7\u09be")
def test_the_text_is_the_normalised_text(text: str):
    assert NormalisedText(text).text == normalise(text)


def test_characters_that_nfc_changes_give_the_normalised_text_after_others():
    changing = [each for each in EVERY_CHARACTER if unicodedata.combining(each) or unicodedata.decomposition(each)]
    letters = [*changing, *map(chr, range(0x1100, 0x1200)), *"\u09be\u09d7\u0b3e\u0dcf\u3099"]
    for before in ("", "e", "=\u0301", "\u1100", "\uac00", "\u09c7", " "):
        assert [each for each in letters if NormalisedText(before + each).text != normalise(before + each)] == []


@given(TEXTS, st.data())
def test_what_a_span_was_read_from_normalises_to_the_span(text: str, data: st.DataObject):
    source = NormalisedText(text)
    begin = data.draw(st.integers(0, len(source.text)))
    end = data.draw(st.integers(begin, len(source.text)))
    first, last = source.original_span((begin, end))
    assert 0 <= first <= last <= len(text)
    wanted, found = source.text[begin:end].strip(), normalise(text[first:last])
    assert wanted in found
    if unicodedata.is_normalized("NFC", text):
        assert wanted == found


@given(TEXTS)
def test_spans_of_neighbours_are_in_order(text: str):
    source = NormalisedText(text)
    spans = [source.original_span((place, place + 1)) for place in range(len(source.text))]
    assert all(begin < end for begin, end in spans)
    assert all(one == other or one[1] <= other[0] for one, other in itertools.pairwise(spans))


@given(TEXTS.map(normalise), st.data())
def test_a_normalised_text_has_its_own_spans(text: str, data: st.DataObject):
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    assert NormalisedText(text).original_span((begin, end)) == (begin, end)


@pytest.mark.parametrize(
    ("text", "word", "found"),
    [
        ("Schiff\u00adfahrt heute", "Schifffahrt", "Schiff\u00adfahrt"),
        ("Schiff\u00adfahrt heute", "heute", "heute"),
        ("\ufeff a\u200b \u2066x\u2069  Cafe\u0301\u0085y", "Café", "Cafe\u0301"),
        ("one\u001ctwo", "two", "two"),
        ("\u1100\u1161\u11a8 na", "각", "\u1100\u1161\u11a8"),
    ],
)
def test_a_word_is_found_in_the_text_of_the_caller(text: str, word: str, found: str):
    source = NormalisedText(text)
    begin = source.text.index(word)
    first, last = source.original_span((begin, begin + len(word)))
    assert text[first:last] == found


@pytest.mark.parametrize("gap", [" ", "\t\u3000", " \u200b\n\u00ad "])
def test_the_span_of_a_space_is_all_white_space_that_it_was_read_from(gap: str):
    assert NormalisedText(f" a{gap}b").original_span((1, 2)) == (2, 2 + len(gap))


@pytest.mark.parametrize("span", [(-1, 0), (0, 4), (2, 1)])
def test_a_span_that_is_not_in_the_text_is_refused(span: tuple[int, int]):
    with pytest.raises(LingonError, match=r"span must be within 0 and 3, .* got \(-?\d, \d\)"):
        NormalisedText(" a b ").original_span(span)


def test_a_long_run_of_marks_is_read():
    text = "e" + "\u0301\u0323" * 50_000 + " x"
    source = NormalisedText(text)
    assert source.original_span((len(source.text) - 1, len(source.text))) == (len(text) - 1, len(text))


def test_the_corpora_of_the_repository_have_none_of_the_white_space_that_used_to_be_removed():
    files = [*(ROOT / "tests" / "data").glob("tatoeba.*"), *(ROOT / "models" / "en-de").glob("*/golden.json")]
    assert len(files) == 3
    assert not any(set(Path(file).read_text(encoding="utf-8")) & set("\x1c\x1d\x1e\x1f\x85") for file in files)


PROSE = st.text(alphabet="abcDE .,;!?…。\"'“”()0123", max_size=120).map(normalise)


def texts(text: str) -> list[str]:
    return [text[begin:end] for begin, end in sentences(text)]


@given(PROSE, st.integers(1, 12))
def test_parts_fit_and_contain_every_character_except_the_spaces_between_them(text: str, longest: int):
    def fits(part: str) -> bool:
        return len(part) <= longest

    spans = list(split(text, fits))
    assert all(fits(text[begin:end]) and text[begin:end] for begin, end in spans)
    assert "".join(text[begin:end] for begin, end in spans).replace(" ", "") == text.replace(" ", "")
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. We stay.", ["It rains.", "We stay."]),
        ("Dr. Smith met J. F. Kennedy. He left.", ["Dr. Smith met J. F. Kennedy.", "He left."]),
        ('He said: "Go!" Then he went.', ['He said: "Go!"', "Then he went."]),
        ("On the 3. October we met. Fine.", ["On the 3. October we met.", "Fine."]),
        ("It was 1990. Then it ended.", ["It was 1990.", "Then it ended."]),
        ("Really?! Yes… maybe. No.", ["Really?!", "Yes… maybe.", "No."]),
        ("今日は。明日は。", ["今日は。", "明日は。"]),
        ("e.g. This one", ["e.g. This one"]),
        ("One sentence", ["One sentence"]),
    ],
)
def test_sentences_end_at_unambiguous_punctuation_only(text: str, expected: list[str]):
    assert texts(text) == expected


def test_words_are_cut_only_where_they_do_not_fit():
    text = f"Tom {'x' * 50} left. He came."
    parts = [text[begin:end] for begin, end in split(text, lambda part: len(part) <= 20)]
    assert parts == ["Tom", "x" * 12, "x" * 13, "x" * 12, "x" * 13, "left.", "He came."]


def test_a_script_without_spaces_is_cut_after_a_comma_and_never_before_a_mark():
    text = "今日はとても良い天気です、散歩に行きましょう"
    parts = [text[begin:end] for begin, end in split(text, lambda part: len(part) <= 15)]
    assert parts == ["今日はとても良い天気です、", "散歩に行きましょう"]
    marked = "a\u0301" * 20
    assert all(not marked[begin:end].startswith("\u0301") for begin, end in split(marked, lambda part: len(part) <= 9))


def test_a_long_sentence_is_split_after_a_clause_near_its_middle():
    text = "I came to see the sea, and I saw the sun"
    assert [text[begin:end] for begin, end in split(text, lambda part: len(part) < 30)] == [
        "I came to see the sea,",
        "and I saw the sun",
    ]


@pytest.mark.parametrize("doubtful", ["1. ", "Dr. ", "a. ", "x.. "])
def test_the_search_for_a_sure_end_of_a_sentence_ends_after_some_thousand_characters(doubtful: str):
    text = normalise(doubtful * (5 * SURE))
    found = list(sentences(text))
    assert max(end - begin for begin, end in found) <= SURE + len(doubtful)
    assert " ".join(text[begin:end] for begin, end in found) == text
    assert texts(normalise(doubtful * 100)) == [normalise(doubtful * 100)]


@pytest.mark.parametrize("word", ["word", "a.b", "....x", "w" * (LONGEST - 1)])
def test_a_text_without_the_end_of_a_sentence_is_read_in_bounded_steps(word: str):
    text = " ".join([word] * (3 * LONGEST // len(word) + 2))
    found = list(sentences(text))
    assert max(end - begin for begin, end in found) <= LONGEST
    assert " ".join(text[begin:end] for begin, end in found) == text


def test_a_word_longer_than_a_step_stays_whole():
    word = "w" * (LONGEST + 5)
    assert texts(f"{word} a {word}") == [word, "a", word]
    assert texts(f"{word}{word}") == [word + word]
