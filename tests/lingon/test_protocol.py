"""The client protocol without sockets and clocks: parts of a list, tries, pauses, deadlines."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from lingon import AsyncClient, Client, NormalisedText, ServerError
from lingon.cli.main import main
from lingon.client.large_texts import joined
from lingon.client.messages import MAX_BYTES, cut, prefixes_of, score_request, text_results, translate_request
from lingon.client.options import MemoryOptions, Sampling, TranslateOptions
from lingon.client.protocol import ClientProtocol
from lingon.client.results import MemoryMatch, TermOutcome, TextResult, TextWarning, Translation
from lingon.client.steps import (
    HEALTH_STATES,
    LIST_MODELS,
    TRANSLATE,
    HealthCheckRequest,
    HealthCheckResponse,
    Retry,
    Send,
    Sleep,
)
from lingon.errors import SettingsError
from lingon.terms.term import Term
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import running


@given(st.lists(st.text(max_size=5)), st.integers(1, 6))
def test_the_parts_of_a_list_are_the_list(texts: list[str], most: int) -> None:
    parts = cut(texts, most)
    assert [text for _, part in parts for text in part] == texts
    assert all(1 <= len(part) <= most and texts[start : start + len(part)] == part for start, part in parts)


def test_a_request_stays_below_the_size_that_a_server_takes() -> None:
    half = "x" * (MAX_BYTES // 2)
    assert [len(part) for _, part in cut([half, half, half, half * 4, half], 256)] == [2, 1, 1, 1]


@given(
    retries=st.integers(0, 6),
    named=st.lists(st.one_of(st.none(), st.floats(0, 3)), min_size=8, max_size=8),
    spent=st.lists(st.floats(0, 2), min_size=8, max_size=8),
    draw=st.floats(0, 1),
    overslept=st.floats(0, 1),
    timeout=st.floats(0.01, 10),
)
@example(retries=1, named=[1.890286437108783] * 8, spent=[0.0] * 8, draw=0.0, overslept=0, timeout=1.890286437108783)
def test_no_try_begins_or_may_end_after_the_deadline(
    retries: int, named: list[float | None], spent: list[float], draw: float, overslept: float, timeout: float
) -> None:
    now, tries = 100.0, 0
    protocol = ClientProtocol(timeout=timeout, retry=Retry(retries=retries), clock=lambda: now, random=lambda: draw)
    exchange = protocol.call(TRANSLATE, pb.TranslateRequest())
    step: Send | Sleep | None = next(exchange)
    while step is not None:
        if isinstance(step, Sleep):
            now += step.seconds + overslept
            step = _proceed(lambda: next(exchange))
        else:
            assert now < 100.0 + timeout
            assert 0 < step.timeout <= 100.0 + timeout - now + 1e-9
            now += min(spent[tries], step.timeout)
            error = ServerError("down", code_pb2.UNAVAILABLE, retry_after=named[tries])
            step = _proceed(functools.partial(exchange.throw, error))
            tries += 1
    assert 1 <= tries <= retries + 1


def _proceed(go_on: Callable[[], Send | Sleep]) -> Send | Sleep | None:
    """The next step, or None if the exchange raised its error."""
    try:
        return go_on()
    except ServerError:
        return None


def test_pauses_double_within_their_jitter_and_have_an_upper_bound() -> None:
    retry, error = Retry(retries=99), ServerError("down", code_pb2.UNAVAILABLE)
    for failures in range(1, 60):
        longest = min(0.1 * 2 ** (failures - 1), 5.0)
        assert retry.pause(failures, error, 1e6, lambda: 0.0) == pytest.approx(longest / 2)
        assert retry.pause(failures, error, 1e6, lambda: 1.0) == pytest.approx(longest)


def test_asking_for_the_limit_and_the_first_request_share_a_deadline() -> None:
    now = 100.0
    protocol = ClientProtocol(timeout=10, clock=lambda: now)
    exchange = protocol.translate(["a", "b", "c"], {"timeout": 2})
    step = next(exchange)
    assert (step.method, step.timeout) == (LIST_MODELS, 2)
    now += 1.5
    step = exchange.send(pb.ListModelsResponse(max_texts=2))
    assert (step.method, step.timeout) == (TRANSLATE, 0.5)
    now += 0.4
    step = exchange.send(pb.TranslateResponse(results=[pb.TextResult()] * 2))
    assert (step.method, step.timeout) == (TRANSLATE, 2)


def test_prefixes_count_as_bytes_of_a_request() -> None:
    half = "x" * (MAX_BYTES // 2)
    assert [len(part) for _, part in cut(["a", "b", "c"], 256, [half] * 3)] == [1, 1, 1]


def test_a_server_that_has_answered_is_waited_for_and_one_that_never_did_is_not() -> None:
    assert _tries(ClientProtocol(timeout=30, retry=Retry(retries=2, wait_when_away=True)), 20) == 3
    for patient, expected in ((False, 3), (True, 20)):
        protocol = ClientProtocol(timeout=30, retry=Retry(retries=2, wait_when_away=patient, longest_pause=1.0))
        asking = protocol.call(LIST_MODELS, pb.ListModelsRequest())
        next(asking)
        with pytest.raises(StopIteration):
            asking.send(pb.ListModelsResponse())
        assert _tries(protocol, 20) == expected


def _tries(protocol: ClientProtocol, most: int) -> int:
    """How often a call is sent while the server is away, up to most."""
    now, sent = 0.0, 0
    protocol.clock = lambda: now
    exchange = protocol.call(TRANSLATE, pb.TranslateRequest())
    step: Send | Sleep | None = next(exchange)
    while step is not None and sent < most:
        if isinstance(step, Sleep):
            now += step.seconds
            step = _proceed(lambda: next(exchange))
        else:
            sent += 1
            step = _proceed(lambda: exchange.throw(ServerError("down", code_pb2.UNAVAILABLE)))
    return sent


def test_the_messages_of_the_health_service_are_those_of_its_own_package() -> None:
    own = health_pb2.HealthCheckRequest(service="model/en-de")
    assert HealthCheckRequest(value="model/en-de").SerializeToString() == own.SerializeToString()
    for number, state in enumerate(HEALTH_STATES):
        reply = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.ServingStatus.Value(state))
        assert HealthCheckResponse.FromString(reply.SerializeToString()).value == number


@pytest.mark.parametrize("words", ["word", 5])
@pytest.mark.parametrize("name", ["forbidden_words", "forced_words", "keep"])
def test_words_that_are_no_list_are_refused(name: Any, words: Any) -> None:
    with pytest.raises(SettingsError, match=f"^{name} must be a list of str, got "):
        translate_request(pb.TranslateRequest, ["hello"], [], {name: words})


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"beam_size": "4"}, "beam_size = '4'"),
        ({"beam_size": -1}, "beam_size = -1"),
        ({"length_penalty": "high"}, "length_penalty = 'high'"),
        ({"source": 5}, "source = 5"),
        ({"forced_words": [5]}, "forced_words = [5]"),
        ({"sampling": Sampling(temperature="hot")}, "temperature = 'hot'"),  # type: ignore[arg-type]
        ({"model": "\udcff" * 99}, "model = '\\udcff"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_the_name_of_its_option(options: Any, shown: str) -> None:
    with pytest.raises(SettingsError) as caught:
        translate_request(pb.TranslateRequest, ["hello"], prefixes_of(["hello"], options), options)
    assert str(caught.value).startswith(shown)
    assert " cannot be written into a request: " in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_selection_of_attention_is_no_dictionary() -> None:
    with pytest.raises(SettingsError, match=r"^attention must be a lingon\.AttentionSelection, got dict$"):
        score_request([("a", "b")], {"attention": {"layers": [0]}})  # type: ignore[typeddict-item]


def test_the_documentation_of_a_warning_has_every_code() -> None:
    codes = {name.removeprefix("WARNING_CODE_").lower() for name, code in pb.WarningCode.items() if code}
    assert set(re.findall(r'"(\w+)"', TextWarning.__doc__ or "")) == codes


def test_missing_words_and_their_warning_are_read() -> None:
    warning = pb.Warning(code=pb.WARNING_CODE_FORCED_WORDS, message="1 of 1")
    reply = pb.TextResult(hypotheses=[pb.Hypothesis(text="a", missing_words=["b", "c d"])], warnings=[warning])
    (result,) = text_results(pb.TranslateResponse(results=[reply]))
    assert result.best.missing_words == ("b", "c d")
    assert [each.code for each in result.warnings] == ["forced_words"]


def test_every_option_of_texts_is_in_the_request() -> None:
    request = translate_request(
        pb.TranslateRequest,
        ["hello"],
        [],
        {
            "split_sentences": "nonewlines",
            "return_sentences": True,
            "keep": ["Lingon"],
            "protect": False,
            "lower_capitals": False,
            "format": "html",
            "guard": "refuse",
            "ignore_tags": ["code"],
            "splitting_tags": ["div"],
            "non_splitting_tags": ["p"],
            "translate_attributes": ["alt"],
        },
    )
    assert request.text == pb.TextOptions(
        split_sentences=pb.SENTENCE_SPLITTING_NONEWLINES,
        return_sentences=True,
        keep=["Lingon"],
        protect=False,
        lower_capitals=False,
        format=pb.TEXT_FORMAT_HTML,
        guard=pb.GUARD_POLICY_REFUSE,
        ignore_tags=["code"],
        splitting_tags=["div"],
        non_splitting_tags=["p"],
        translate_attributes=["alt"],
    )
    assert not translate_request(pb.TranslateRequest, ["hello"], [], {}).HasField("text")


def test_every_option_of_decoding_is_in_the_request() -> None:
    given: Any = {
        "beam_size": 4,
        "num_hypotheses": 2,
        "length_penalty": 0.5,
        "max_output_tokens": 9,
        "return_tokens": True,
        "return_alignment": True,
        "shortlist": False,
        "min_output_tokens": 2,
        "no_repeat_ngram_size": 3,
        "repetition_penalty": 1.5,
        "forbidden_words": ["a"],
        "forced_words": ["b"],
        "patience": 2.0,
        "coverage_penalty": 0.25,
        "prefix_bias": 0.75,
        "alternatives": 3,
        "min_alternative_probability": 0.125,
    }
    others: Any = {"sampling": Sampling(seed=5), "long_text": "refuse"}
    request = translate_request(pb.TranslateRequest, ["hello"], [], {**given, **others}, 2)
    assert request.options == pb.DecodingOptions(
        **given, sampling=pb.SamplingOptions(seed=7), long_text=pb.LONG_TEXT_POLICY_REFUSE
    )
    assert {field.name for field in pb.DecodingOptions.DESCRIPTOR.fields} == {*given, *others}


class Counted(list[str]):
    """A list that counts how often it is read."""

    reads = 0

    def __iter__(self) -> Iterator[str]:
        self.reads += 1
        return super().__iter__()


def test_the_request_of_one_text_is_written_once() -> None:
    options: Any = {"keep": Counted(["Lingon"])}
    step = next(ClientProtocol().translate("hello", options))
    assert isinstance(step, Send)
    assert options["keep"].reads == 1


def test_terms_glossaries_and_memories_are_in_the_request() -> None:
    memory = MemoryOptions(memories=["m"], min_score=80, max_matches=3, always_translate=True, use_fuzzy=True)
    terms = [Term("a", "b", ("c",), exact=True, forbid=("d",), stems=True)]
    options = TranslateOptions(terms=terms, glossaries=["g", "h"], memory=memory)
    for kind in (pb.TranslateRequest, pb.TranslateStreamRequest):
        request = translate_request(kind, ["hello"], [], options)
        assert [Term.of(each) for each in request.terms] == terms
        assert request.glossaries == ["g", "h"]
        assert request.memory == pb.MemoryOptions(
            memories=["m"], min_score=80, max_matches=3, always_translate=True, use_fuzzy=True
        )
    assert not translate_request(pb.TranslateRequest, ["hello"], [], {}).HasField("memory")


def test_what_became_of_terms_and_the_matches_of_memories_are_read() -> None:
    span = pb.Span(begin=1, end=3)
    terms = [
        pb.TermOutcome(source="a", target="b", glossary="g", source_span=span, means=pb.TERM_MEANS_MISSED),
        pb.TermOutcome(source="a", target="b", source_span=span, target_span=span, means=pb.TERM_MEANS_REPAIRED),
    ]
    matches = [pb.MemoryMatch(memory="m", source="s", target="t", score=88, source_span=span, used=True, origin="o")]
    reply = pb.TextResult(hypotheses=[pb.Hypothesis(text="b")], terms=terms, matches=matches)
    (result,) = text_results(pb.TranslateResponse(results=[reply]))
    assert result.terms == (
        TermOutcome("a", "b", "g", (1, 3), None, "missed"),
        TermOutcome("a", "b", "", (1, 3), (1, 3), "repaired"),
    )
    assert result.matches == (MemoryMatch("m", "s", "t", 88, (1, 3), used=True, origin="o"),)


def test_the_terms_of_a_text_in_halves_have_their_places_in_the_whole() -> None:
    def half(text: str, means: str, target: tuple[int, int] | None) -> TextResult:
        found = () if not means else (TermOutcome("a", "b", "", (0, 1), target, means),)
        missed = (TextWarning("term_missed", f"1 of 1 terms are missed: {text}"),) if means == "missed" else ()
        match = MemoryMatch("m", "s", "t", 100, (0, 2), used=False, origin="")
        return TextResult((Translation(text, 0.0, "end"),), terms=found, matches=(match,), warnings=missed)

    result = joined(("a. ", "a."), (half("B. ", "missed", None), half("Xb.", "free", (1, 2))))
    assert [(each.source_span, each.target_span) for each in result.terms] == [((0, 1), None), ((3, 4), (4, 5))]
    assert [each.source_span for each in result.matches] == [(0, 2), (3, 5)]
    assert result.warnings == (TextWarning("term_missed", "1 of 2 terms are missed: B. "),)
    both = joined(("a. ", "a."), (half("b", "missed", None), half("c", "missed", None)))
    assert both.warnings == (TextWarning("term_missed", "2 of 2 terms are missed: b, c"),)


WORDS = ["Tom lives in Boston.", "It is raining today.", "She likes the old sea.", "What is it?", "Ja."]
LINE = " ".join(WORDS[number % 5] for number in range(53))
LINES = "".join(f"- {WORDS[number % 5]}\r\n" if number % 7 else "\n" for number in range(60))
CHINESE = "你好。你好吗？很好！" * 15
RUSSIAN = " ".join("Привет всем людям." for _ in range(40))
HTML = "".join(f"<p>Tom <b>has {number}</b> boats.</p>\n" for number in range(40))
TEXTS = {"line": LINE, "lines": LINES, "chinese": CHINESE, "russian": RUSSIAN}
FEW, MANY = {"max_queue_texts": 8}, {"max_queue_texts": 1024}


async def asked(text: str, limits: dict[str, int], kind: str = "sync", **options: Any) -> TextResult:
    async with running(**limits) as server:
        target = f"127.0.0.1:{server.server.port}"
        if kind == "async":
            async with AsyncClient(target) as client:
                return await client.translate(text, **options)
        return await asyncio.to_thread(_ask, target, text, options)


def _ask(target: str, text: str, options: dict[str, Any]) -> TextResult:
    with Client(target) as client:
        return client.translate(text, **options)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("name", TEXTS)
async def test_the_result_is_that_of_the_whole(name: str, kind: str):
    text = TEXTS[name]
    wanted = {"return_alignment": True, "return_sentences": True, "return_tokens": True}
    whole, parts = await asked(text, MANY, kind, **wanted), await asked(text, FEW, kind, **wanted)
    assert parts.text == whole.text == text
    assert parts.sentences == whole.sentences
    assert parts.best.tokens == whole.best.tokens
    assert parts.normalised_text == whole.normalised_text == NormalisedText(text).text
    assert [(link.source, link.target) for link in parts.best.alignment] == [
        (link.source, link.target) for link in whole.best.alignment
    ]
    assert parts.best.score == pytest.approx(whole.best.score)
    assert (parts.source_tokens, parts.target_tokens) == (whole.source_tokens, whole.target_tokens)
    assert parts.confidence == whole.confidence
    assert [_counted(each) for each in parts.warnings] == [_counted(each) for each in whole.warnings]


def _counted(warning: TextWarning) -> tuple[str, str]:
    return warning.code, re.sub(" of [0-9]+ ", " ", warning.message)


@pytest.mark.parametrize("code", ["copy", "unreadable", "retried"])
@pytest.mark.parametrize("counts", [(1, 1, 1), (1, 3), (4, 1, 2), (0, 1, 1), (2, 0, 1), (1, 1, 0, 5)])
def test_a_warning_counts_the_sentences_of_all_parts(code: str, counts: tuple[int, ...]):
    """The server gives no number in a text of one sentence."""
    found = None
    for count in counts:
        message = f"{count} of 6 parts: it is so" if count > 1 else "it is so"
        warnings = (TextWarning(code, message),) if count else ()
        result = TextResult(warnings=warnings)
        found = result if found is None else joined(("A. ", "B."), (found, result))
    assert found is not None
    (warning,) = found.warnings
    assert re.sub(" of [0-9]+ ", " ", warning.message) == f"{sum(counts)} parts: it is so"
    if counts == (1, 1, 1):
        assert warning.message == "3 of 3 parts: it is so"


@pytest.mark.parametrize(
    ("code", "alone", "several", "both"),
    [
        (
            "split",
            "longer than the model reads: translated in 2 parts",
            "1 of 3 sentences are longer than the model reads: translated in 4 parts",
            "2 of 4 sentences are longer than the model reads: translated in 6 parts",
        ),
        (
            "markup_split",
            "the sentence was cut at a string that is kept",
            "2 of 3 sentences were cut at a string that is kept",
            "3 of 4 sentences were cut at a string that is kept",
        ),
        (
            "length",
            "1 of 2 translations hit the bound on their length",
            "2 of 2 translations hit the bound on their length",
            "2 of 2 translations hit the bound on their length",
        ),
    ],
)
def test_warnings_about_sentences_and_translations_are_added_as_they_count(
    code: str, alone: str, several: str, both: str
):
    results = [TextResult(warnings=(TextWarning(code, message),)) for message in (alone, several)]
    assert [each.message for each in joined(("A. ", "B."), results).warnings] == [both]
    assert [each.message for each in joined(("A. ", "B."), results[::-1]).warnings] == [both]


async def test_html_is_cut_between_its_blocks():
    assert (await asked(HTML, FEW, format="html")).text == HTML


async def test_wrapped_text_is_cut_between_its_paragraphs():
    text = "\n\n".join(["Tom lives\nin Boston. It is\nraining."] * 20)
    result = await asked(text, FEW, split_sentences="nonewlines", return_sentences=True)
    assert result.text == (await asked(text, MANY, split_sentences="nonewlines")).text
    assert [text[slice(*each.source)] for each in result.sentences[:2]] == ["Tom lives\nin Boston.", "It is\nraining."]


async def test_the_prefix_belongs_to_the_first_part():
    result = await asked(LINE, FEW, target_prefix="Tom")
    assert result.text == (await asked(LINE, MANY, target_prefix="Tom")).text
    assert result.text.startswith("Tom")


async def test_a_text_that_is_read_as_one_sentence_is_not_cut():
    async with running(**FEW) as server:
        target = f"127.0.0.1:{server.server.port}"

        def ask() -> list[TextResult]:
            with Client(target) as client:
                return client.translate(
                    [LINE, "Tom"], split_sentences="nonewlines", forced_words=["Tom"], long_text="split"
                )

        results = await asyncio.to_thread(ask)
    assert results[0].error is not None
    assert (results[0].error.reason, results[1].text) == ("REQUEST_TOO_LARGE", "Tom")


async def test_a_text_that_has_no_place_to_be_cut_is_refused_with_the_bound():
    async with running(max_queue_tokens=64) as server:
        target = f"127.0.0.1:{server.server.port}"

        def ask() -> list[TextResult]:
            with Client(target) as client:
                return client.translate(["Tom " * 200, "Tom"], long_text="split")

        results = await asyncio.to_thread(ask)
    assert "a request may have 64 at most" in str(results[0].error)
    assert results[1].text == "Tom"


@pytest.mark.parametrize("flags", [(), ("--json",)])
async def test_the_command_line_translates_a_long_line(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], flags: tuple[str, ...]
):
    path = tmp_path / "in.txt"
    path.write_text(f"Tom.\n{LINE}\n\nJa.\n")
    async with running(**FEW) as server:
        arguments = ["translate", "--server", f"127.0.0.1:{server.server.port}", "--input", str(path), *flags]
        status = await asyncio.to_thread(main, arguments)
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert not status
    if flags:
        lines = [json.loads(line)["text"] for line in lines]
    assert lines == ["Tom.", LINE, "", "Ja."]
