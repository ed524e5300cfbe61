"""What a model cannot read comes back as it was, with every kind of tokenizer, over a real socket."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lingon.moses import serialised
from lingon.serving.translation.planner import alphabet_of
from lingon.text import UNK, Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import CORPUS, EchoRunner, RunningServer, running_with
from tests.support.tokenizers import learn_merges, merge_all, train_sentencepiece

TEXT = CORPUS + "\n0 1 2 3 4 5 6 7 8 9 - an old-time first office 1st"
SMALL_LETTERS = TEXT.lower()


@functools.cache
def moses_pieces() -> bytes:
    """Return a vocabulary of Moses pieces, with those of single characters at both places of a word."""
    words = Counter(TEXT.replace(".", " .").replace(",", " ,").split())
    merges = learn_merges(words, 60)
    pieces = {each + end for each in set("".join(words)) for end in ("", "</w>")} - {"z</w>"}
    for word in words:
        cut: tuple[str, ...] = (*word[:-1], word[-1] + "</w>")
        for pair in merges:
            cut = merge_all(cut, pair)
        pieces.update(cut)
    listed = ["<pad>", "<s>", "</s>", "<unk>", *sorted(pieces)]
    return serialised("en", listed, [], [" ".join(pair) for pair in merges])


def pieces(kind: str, text: str = TEXT, **options: Any) -> Callable[[], bytes]:
    """Return the training of a sentencepiece model."""
    return functools.cache(
        lambda: train_sentencepiece(text.splitlines(), 360, model_type=kind, hard_vocab_limit=False, **options)
    )


TOKENIZERS: dict[str, Callable[[], bytes]] = {
    "unigram with bytes": pieces("unigram", byte_fallback=True),
    "unigram without bytes": pieces("unigram"),
    "byte pairs with bytes": functools.cache(
        lambda: train_sentencepiece(TEXT.splitlines(), 400, model_type="bpe", byte_fallback=True)
    ),
    "byte pairs without bytes": functools.cache(lambda: train_sentencepiece(TEXT.splitlines(), 150, model_type="bpe")),
    "a normalisation of its own": pieces("unigram", normalization_rule_name="nmt_nfkc"),
    "small letters": pieces("unigram", SMALL_LETTERS, byte_fallback=True),
    "Moses": moses_pieces,
}
kinds = pytest.mark.parametrize("kind", TOKENIZERS)
BEAMS = [1, 4]
STRINGS = ["Nguyễn", "東京", "Москва", "20 m²", "~5", "AT&T", "①", "مرحبا"]


@asynccontextmanager
async def serving(kind: str, says: Callable[[list[int]], list[int]] | None = None) -> AsyncIterator[RunningServer]:
    """Run a server of a model with this tokenizer that translates each text to itself."""
    async with running_with(TOKENIZERS[kind](), EchoRunner(says=says)) as server:
        yield server


async def translated(server: RunningServer, text: str, beam_size: int = 1, **options: Any) -> pb.TextResult:
    decoding = pb.DecodingOptions(beam_size=beam_size)
    reply = await server.translate(text, options=decoding, text=pb.TextOptions(**options))
    result: pb.TextResult = reply.results[0]
    assert result.status.code == 0, result.status.message
    return result


@kinds
@pytest.mark.parametrize("beam_size", BEAMS)
async def test_what_is_not_read_comes_back_and_the_rest_is_translated(kind: str, beam_size: int):
    async with serving(kind) as server:
        for string in STRINGS:
            text = f"Tom lives in {string} and has the old sea."
            found = (await translated(server, text, beam_size)).hypotheses[0].text
            assert found.lower() == text.lower(), kind


@kinds
@pytest.mark.parametrize("sign", "›|•→")
async def test_the_texts_beside_a_sign_that_separates_are_translated_apart(kind: str, sign: str):
    text = f"Tom lives {sign} Where is she {sign} the old man"
    async with serving(kind) as server:
        before = server.runner.encoded
        found = (await translated(server, text)).hypotheses[0].text
        assert server.runner.encoded - before == 3
    assert found.lower() == text.lower()


TWINS = {
    "The \ufb01rst of\ufb01ce": "The first office",
    "Ｔｈｅ old man": "The old man",
    "It is 1\u02e2\u1d57": "It is 1st",
    "The co\u2011old sea": "The co-old sea",
}


@pytest.mark.parametrize(
    ("kind", "sent"),
    # Moses reads this hyphen itself, as one between words.
    [(kind, sent) for kind in TOKENIZERS for sent in TWINS if kind != "Moses" or "\u2011" not in sent],
)
async def test_a_text_with_twins_is_translated_as_its_twin(kind: str, sent: str):
    async with serving(kind) as server:
        found, twin = [(await translated(server, text)).hypotheses[0].text for text in (sent, TWINS[sent])]
    assert found == twin


@pytest.mark.parametrize("off", [("protect",), ("lower_capitals",), ("protect", "lower_capitals")])
@pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if kind not in ("a normalisation of its own", "Moses")])
async def test_a_model_reads_twins_unless_it_reads_all_as_it_is(kind: str, off: tuple[str, ...]):
    """Bundles are checked by what their model itself makes of a text, as `WHOLE` has it."""
    tokenizer = Tokenizer(TOKENIZERS[kind]())
    async with serving(kind) as server:
        for sent, twin in [(sent, twin) for sent, twin in TWINS.items() if "\u02e2" not in sent]:
            found = await translated(server, sent, **dict.fromkeys(off, False))
            read = sent if len(off) == 2 else twin.lower() if kind == "small letters" else twin
            assert found.usage.source_tokens == len(tokenizer.encode_source(normalise(read))), sent


@kinds
async def test_a_text_in_another_script_stays_whole_and_has_a_warning(kind: str):
    async with serving(kind) as server:
        before = server.runner.encoded
        for text in ("Привет, как дела?", "В 2019 году", "東京です。", "Γειά σου Κόσμε!"):
            result = await translated(server, text, guard=pb.GUARD_POLICY_WARN)
            assert result.hypotheses[0].text == text
            assert pb.WARNING_CODE_UNREADABLE in [each.code for each in result.warnings]
        assert server.runner.encoded == before


@kinds
async def test_one_word_that_stays_is_no_warning_and_several_are(kind: str):
    async with serving(kind) as server:
        for string, warned in [("Nguyễn", False), ("Nguyễn Trầnh", False), ("東", False), ("Война и мир", True)]:
            result = await translated(server, f"Tom lives in {string} and she knows.", guard=pb.GUARD_POLICY_WARN)
            assert (pb.WARNING_CODE_UNREADABLE in [each.code for each in result.warnings]) == warned, string


@kinds
@pytest.mark.parametrize("text", ["TOM LIVES IN BOSTON.", "WHERE IS THE STATION?"])
async def test_capitals_are_no_reason_to_keep_a_text(kind: str, text: str):
    async with serving(kind) as server:
        result = await translated(server, text, guard=pb.GUARD_POLICY_WARN)
    assert result.hypotheses[0].text.upper() == text
    assert pb.WARNING_CODE_UNREADABLE not in [each.code for each in result.warnings]


@kinds
@pytest.mark.parametrize("text", ["Tom lives in Nguyễn 東 • and", "\ufb01 ② ≤ 5", "Tom � lives", "�", "Москва"])
async def test_without_protection_nothing_is_kept_and_no_character_is_broken(kind: str, text: str):
    async with serving(kind) as server:
        for beam_size in BEAMS:
            found = (await translated(server, text, beam_size, protect=False)).hypotheses[0].text
            assert found.count("\ufffd") <= text.count("\ufffd")


@kinds
async def test_the_replacement_character_comes_back_only_if_it_was_sent(kind: str):
    async with serving(kind) as server:
        found = await translated(server, "Tom lives \ufffd in Boston.")
    assert found.hypotheses[0].text.count("\ufffd") == 1


@kinds
async def test_a_stream_sends_what_the_call_answers(kind: str):
    text = "The \ufb01rst sea. Tom lives in Nguyễn now. Where is she • the man"
    async with serving(kind) as server:
        whole = (await translated(server, text)).hypotheses[0].text
        _, *events = await server.stream(text, options=pb.DecodingOptions(beam_size=1))
    assert "".join(event.delta.text for event in events) == whole
    assert "Nguyễn" in whole
    assert " • " in whole


@kinds
async def test_sentences_and_links_refer_to_the_text_that_was_sent(kind: str):
    text = "The \ufb01rst man lives. Ｗｈｅｒｅ is she?"
    async with serving(kind) as server:
        reply = await server.translate(
            text,
            options=pb.DecodingOptions(beam_size=1, return_alignment=True),
            text=pb.TextOptions(return_sentences=True),
        )
    (result,) = reply.results
    assert [text[each.source.begin : each.source.end] for each in result.sentences] == [
        "The \ufb01rst man lives.",
        "Ｗｈｅｒｅ is she?",
    ]
    assert result.normalised_text == normalise(text)
    spans = [(link.source.begin, link.source.end) for link in result.hypotheses[0].alignment]
    assert all(0 <= begin <= end <= len(text) for begin, end in spans)
    assert spans == sorted(spans)
    assert max(end for _, end in spans) >= len(text) - 1


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if "bytes" in kind or kind == "Moses"])
def test_no_unknown_piece_and_no_byte_is_read(kind: str):
    tokenizer = Tokenizer(TOKENIZERS[kind]())
    alphabet = alphabet_of(tokenizer)
    for text in ("Tom", "lives", "東", "é", "²", "\ufb01", "Москва", "~"):
        ids = tokenizer.source.encode(text)
        assert alphabet.reads(text) == (UNK not in ids and not any(map(tokenizer.source.is_byte, ids)))


async def test_a_word_that_moses_pieces_cannot_spell_is_kept():
    text = "Tom lives in Bosz and knows."
    assert UNK in Tokenizer(moses_pieces()).encode_source(text)
    async with serving("Moses") as server:
        assert (await translated(server, text)).hypotheses[0].text == text
