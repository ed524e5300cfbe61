"""A translation begins with its target prefix, character for character, whatever pieces the vocabulary has."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.rpc import code_pb2

from lingon.serving.translation.replies.detokenizer import PartDetokenizer
from lingon.serving.translation.replies.output_processor import generated_spans
from lingon.serving.translation.target_prefix import Begin, text_of
from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import CORPUS, EchoRunner, RunningServer, running
from tests.support.tokenizers import train_sentencepiece

VOCABULARIES: dict[str, dict[str, Any]] = {
    "without bytes": {},
    "NFKC": {"normalization_rule_name": "nmt_nfkc"},
    "lower case": {"normalization_rule_name": "nmt_nfkc_cf"},
    "spaces after words": {"treat_whitespace_as_suffix": True},
}
MODELS = {
    name: train_sentencepiece(CORPUS.splitlines(), 200, model_type="unigram", hard_vocab_limit=False, **options)
    for name, options in VOCABULARIES.items()
}
PREFIXES = ["Жt", "Ж", "Tom Ж", "Tom ﬁ", "Das ½ Ж x", "日本 Tom", "Tom 日本"]
vocabularies = pytest.mark.parametrize("vocabulary", VOCABULARIES)


@vocabularies
@pytest.mark.parametrize("prefix", PREFIXES)
def test_text_spans_and_stream_begin_with_the_prefix(vocabulary: str, prefix: str):
    tokenizer = Tokenizer(MODELS[vocabulary])
    given = tuple(tokenizer.encode_target(prefix))
    begin = Begin.of(prefix, given, tokenizer)
    word = tokenizer.encode_target("where")
    for rest in (word, tokenizer.encode_target("Tom where."), [tokenizer.target.piece_to_id("r"), *word], []):
        tokens = (*given, *rest)
        text = text_of(tokenizer, tokens, begin)
        assert text.startswith(prefix)
        assert "".join(text[len(prefix) :].split()) == "".join(tokenizer.decode(rest).split())
        spans = [text[slice(*span)] for span in generated_spans(tokenizer, tokens, begin)]
        shown = [tokenizer.piece_text(token).strip() for token in rest]
        assert [each.strip() for each in spans[len(given) :]] == shown
        detokenizer, deltas = PartDetokenizer(tokenizer, begin), list[str]()
        for token in tokens:
            detokenizer.add(token)
            deltas.append(detokenizer.take())
        assert "".join(deltas) + detokenizer.rest(text) == text


@pytest.mark.parametrize(("prefix", "spaced"), [("Ж", " "), ("Tom Ж", " "), ("Ж", ""), ("Tom Ж", "")])
def test_a_word_after_the_prefix_is_apart_if_its_piece_is(prefix: str, spaced: str):
    tokenizer = Tokenizer(MODELS["without bytes"])
    given = tuple(tokenizer.encode_target(prefix))
    word = tokenizer.target.piece_to_id("\u2581T" if spaced else "T")
    assert tokenizer.piece_text(word) == f"{spaced}T"
    assert text_of(tokenizer, (*given, word), Begin.of(prefix, given, tokenizer)) == f"{prefix}{spaced}T"


@asynccontextmanager
async def serving(vocabulary: str) -> AsyncIterator[RunningServer]:
    """Serve an echo with another vocabulary."""
    size = Tokenizer(MODELS[vocabulary]).source_vocab
    runner = EchoRunner()
    runner.vocab = size
    bundles = ({"files": {"tokenizer.model": MODELS[vocabulary]}, "source_vocab": size, "target_vocab": size},)
    async with running(runner, bundles=bundles) as server:
        yield server


@pytest.mark.parametrize("beam_size", [1, 4])
@vocabularies
async def test_a_server_begins_every_hypothesis_with_the_prefix(vocabulary: str, beam_size: int):
    options = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size, return_alignment=True)
    texts = ["Tom lives in Boston. Where is the station?"] * len(PREFIXES)
    async with serving(vocabulary) as server:
        reply = await server.translate(*texts, options=options, target_prefixes=PREFIXES)
        events = await server.stream(*texts, options=options, target_prefixes=PREFIXES)
    for prefix, result in zip(PREFIXES, reply.results, strict=True):
        assert all(each.text.startswith(prefix) for each in result.hypotheses)
        for each in result.hypotheses:
            assert all(0 <= link.target.begin <= link.target.end <= len(each.text) for link in each.alignment)
    streamed = [""] * len(PREFIXES)
    for event in events:
        streamed[event.delta.text_index] += event.delta.text
    if beam_size == 1:
        assert streamed == [result.hypotheses[0].text for result in reply.results]


async def test_words_that_are_looked_for_in_tokens_refuse_such_a_prefix():
    refused = "target_prefixes[0] has 'Ж' at character 5, which the model's tokens do not spell; leave out"
    async with serving("without bytes") as server:
        for words in ({"forbidden_words": ["x"]}, {"forced_words": ["sea"]}):
            options = pb.DecodingOptions(**words)
            (bad,) = (await server.translate("Tom", options=options, target_prefixes=["Tom Жt"])).results
            (good,) = (await server.translate("Tom", options=options, target_prefixes=["Tom"])).results
            assert bad.status.code == code_pb2.INVALID_ARGUMENT
            assert bad.status.message.startswith(refused)
            assert good.hypotheses[0].text.startswith("Tom")


async def test_a_target_that_the_model_cannot_write_is_named_by_its_score():
    async with serving("without bytes") as server:
        pairs = [pb.ScorePair(source="Tom", target=target) for target in ("Tom", "Tom 日本 Tom")]
        good, bad = (await server.stub.Score(pb.ScoreRequest(pairs=pairs))).results
    assert not good.warnings
    (warning,) = bad.warnings
    assert warning.code == pb.WARNING_CODE_UNREADABLE
    assert re.match("the target has '日本' at character 5, which the model cannot write: ", warning.message)
