"""Live translation measured: word times, lags as SimulEval has them, speakers, loads, and the command."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.bench.live.lagging import Talk, erased, lags, normalised_erasure
from lingon.bench.live.load import AGAIN, AGAIN_GREEDY, LIVE, Heard, LiveLoad, answer, endless, figures, run, to_json
from lingon.bench.live.picture import draw, main
from lingon.bench.live.quality import SpokenSet, best_within_lag, measure, speak_all
from lingon.bench.live.run import parsed, server_settings, verdicts
from lingon.bench.live.speaker import Languages, Policy, connected, listen
from lingon.bench.live.word_times import joined, speeches, units
from lingon.errors import LingonError, SettingsError
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.repository import ROOT

PAIRS = [
    ("Where is the old station?", "Wo ist der alte Bahnhof?"),
    ("It rains.", "Es regnet."),
    ("a b c d e f", "A B C D E F"),
]
EN_DE = Languages("en", "de")
WAIT_3 = Policy("wait_k", 3)


class Interpreter(pb_grpc.TranslationServiceServicer):
    """Translates words to capitals, always `lag` words behind, and shows the rest backwards.

    late: whether the last character of each word comes with the next word
    again: whether an update of the words before comes first, as one of a sentence that they end
    silent_from: the number of the first word that gets no answer
    """

    def __init__(self, lag: int, *, late: bool = False, again: bool = False, silent_from: int | None = None) -> None:
        self.lag, self.late, self.again, self.silent_from = lag, late, again, silent_from
        self.starts: list[pb.LiveStart] = []
        self.texts: list[str] = []
        self.beam_sizes: set[int] = set()

    async def TranslateLive(self, requests: Any, context: Any) -> AsyncIterator[pb.TranslateLiveResponse]:
        words: list[str] = []
        sent = ""
        async for request in requests:
            match request.WhichOneof("message"):
                case "start":
                    self.starts.append(request.start)
                    yield pb.TranslateLiveResponse(ready=pb.LiveReady(model="capitals"))
                    continue
                case "words":
                    words[getattr(request.words, "from") :] = [word.text for word in request.words.words]
                    agreed = len(words) - self.lag
                case _:
                    agreed = len(words)
            if self.silent_from is not None and len(words) > self.silent_from:
                continue
            if self.again:
                yield pb.TranslateLiveResponse(update=pb.LiveUpdate(words=len(words) - 1))
            text = " ".join(words[: max(agreed, 0)]).upper()
            if self.late and agreed < len(words):
                text = text[:-1]
            tentative = "".join(f" {word}" for word in reversed(words[max(agreed, 0) :]))
            update = pb.LiveUpdate(
                agreed=text[len(sent) :], tentative=tentative, words=len(words), agreed_words=max(agreed, 0)
            )
            sent = text or sent
            yield pb.TranslateLiveResponse(update=update)
            if request.HasField("end"):
                break
        yield pb.TranslateLiveResponse(done=pb.LiveDone(words=len(words)))

    async def Translate(self, request: pb.TranslateRequest, context: Any) -> pb.TranslateResponse:
        self.texts += request.texts
        self.beam_sizes.add(request.options.beam_size)
        results = [pb.TextResult(hypotheses=[pb.Hypothesis(text=text.upper())]) for text in request.texts]
        return pb.TranslateResponse(results=results)


@asynccontextmanager
async def listening(service: Any) -> AsyncIterator[str]:
    server = grpc.aio.server()
    pb_grpc.add_TranslationServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def talk(**values: Any) -> Talk:
    empty: dict[str, Any] = {"source": "", "reference": "", "translation": "", "shown": []}
    return Talk(**{**empty, "words": ["w"] * len(values["read"]), **values})


def test_words_are_spoken_in_proportion_to_their_characters_and_2_5_a_second_on_average():
    spoken = speeches(PAIRS, "en")
    words = [word for speech in spoken for word in speech.words]
    assert [word.text for word in words] == " ".join(source for source, _ in PAIRS).split()
    seconds = sum(speech.milliseconds for speech in spoken) / 1000
    assert len(words) / seconds == pytest.approx(2.5, rel=0.01)
    where, is_ = spoken[0].words[:2]
    assert (where.end_ms - where.begin_ms) / (is_.end_ms - is_.begin_ms) == pytest.approx(6 / 3, rel=0.02)
    assert where.end_ms == is_.begin_ms


def test_a_text_without_words_is_not_spoken():
    assert [speech.reference for speech in speeches([("", "a"), ("b", "c"), (" ", "d")], "en")] == ["c"]
    assert speeches([("", "a")], "en") == []


def test_in_a_language_without_blanks_characters_are_words():
    assert units("東京 です", "ja") == ["東", "京", "で", "す"]
    assert units("東京 です", "de") == ["東京", "です"]
    assert joined(units("東京です", "ja"), "ja") == "東京です"
    assert joined(units("in Tokio", "de"), "de") == "in Tokio"


KEPT = json.loads((ROOT / "tests" / "data" / "simuleval.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kept", KEPT["talks"], ids=lambda kept: f"{len(kept['read'])} words")
def test_lags_are_those_of_simuleval(kept: dict[str, Any]):
    measured = lags([talk(**{name: value for name, value in kept.items() if name != "scores"})])
    assert {name: getattr(measured, name) for name in kept["scores"]} == pytest.approx(kept["scores"])


def test_lags_are_means_over_talks_with_a_translation():
    kept = [talk(**{name: value for name, value in each.items() if name != "scores"}) for each in KEPT["talks"][:3]]
    nothing = talk(source_words=2, source_ms=9, reference_words=1, read=[], read_ms=[], elapsed_ms=[])
    expected = sum(lags([each]).laal_ms for each in kept) / 3
    assert lags([*kept, nothing]).laal_ms == pytest.approx(expected)
    assert math.isnan(lags([nothing]).al_words)


def test_words_that_are_replaced_are_erased_with_all_after_them():
    shown = [["a"], ["a", "b", "c"], ["a", "x", "c"], ["a", "x"], ["a", "x", "y"]]
    assert erased(shown) == 0 + 2 + 1 + 0
    plain = {"source_words": 1, "source_ms": 1, "reference_words": 1, "read_ms": [1] * 3, "elapsed_ms": [1] * 3}
    long, short = (talk(read=[1] * 3, shown=each, **plain) for each in (shown, shown[:3]))
    assert normalised_erasure([long]) == 3 / 3
    assert normalised_erasure([long, short]) == (3 + 2) / 6


@pytest.mark.parametrize(("lag", "again"), [(0, False), (1, True), (3, False)])
async def test_a_translation_is_as_far_behind_as_its_interpreter(lag: int, again: bool):
    (speech,) = speeches(PAIRS[2:], "en")
    async with listening(Interpreter(lag, again=again)) as address, connected(address) as server:
        found = await listen(server, speech, WAIT_3, EN_DE)
    assert found.translation == "A B C D E F"
    assert found.read == [min(number + lag, 6) for number in range(1, 7)]
    assert found.read_ms == [speech.words[read - 1].end_ms for read in found.read]
    assert all(late > ideal for late, ideal in zip(found.elapsed_ms, found.read_ms, strict=True))
    assert lags([found]).al_words == pytest.approx(lag + 1)  # the word that is just read is one of them


async def test_the_rest_that_changes_is_erased():
    (speech,) = speeches(PAIRS[2:], "en")
    async with listening(Interpreter(2)) as address, connected(address) as server:
        found = await listen(server, speech, WAIT_3, EN_DE)
    # "a", "b a", "A c b", "A B d c", ...: the tentative words are replaced whenever they are two.
    assert found.shown[:4] == [["a"], ["b", "a"], ["A", "c", "b"], ["A", "B", "d", "c"]]
    assert erased(found.shown) == 1 + 2 * 5
    assert lags([found]).erasure == pytest.approx(11 / 6)


async def test_a_word_counts_when_its_last_character_came():
    (speech,) = speeches([("ab cd ef", "AB CD EF")], "en")
    async with listening(Interpreter(0, late=True)) as address, connected(address) as server:
        assert (await listen(server, speech, WAIT_3, EN_DE)).read == [1, 2, 3]
    async with listening(Interpreter(1, late=True)) as address, connected(address) as server:
        found = await listen(server, speech, WAIT_3, EN_DE)
    assert (found.words, found.read) == (["AB", "CD", "EF"], [3, 3, 3])


async def test_a_failed_call_names_server_policy_and_reason():
    (speech,) = speeches(PAIRS[2:], "en")
    async with listening(pb_grpc.TranslationServiceServicer()) as address, connected(address) as server:
        with pytest.raises(LingonError, match=rf"{address}: wait-k 3: UNIMPLEMENTED: "):
            await listen(server, speech, WAIT_3, EN_DE)


@pytest.mark.parametrize(
    ("policy", "kind", "lag"),
    [("wait-k:5", pb.LIVE_POLICY_WAIT_K, 5), ("local_agreement", pb.LIVE_POLICY_LOCAL_AGREEMENT, 0)],
)
async def test_the_policy_and_the_languages_are_those_of_the_first_message(policy: str, kind: int, lag: int):
    service, (speech,) = Interpreter(1), speeches(PAIRS[1:2], "en")
    async with listening(service) as address, connected(address) as server:
        await listen(server, speech, parsed(policy), EN_DE)
    (start,) = service.starts
    assert (start.policy, start.lag_words) == (kind, lag)
    assert (start.source_language_code, start.target_language_code) == ("en", "de")


@pytest.mark.parametrize(
    ("text", "message"),
    [("wait", "--policy must be one of local_agreement, wait_k"), ("wait_k:x", "must be a number of words, got 'x'")],
)
def test_an_unknown_policy_is_refused(text: str, message: str):
    with pytest.raises(SettingsError, match=message):
        parsed(text)


def test_settings_have_a_name_and_a_value():
    assert server_settings(["engines=2", "log-level=info"]) == {"engines": "2", "log-level": "info"}
    with pytest.raises(SettingsError, match="NAME=VALUE, got 'engines'"):
        server_settings(["engines"])


async def test_policies_are_compared_with_whole_texts(tmp_path: Path):
    texts = SpokenSet("words", speeches([(source, source.upper()) for source, _ in PAIRS], "en"))
    async with listening(Interpreter(1)) as address, connected(address) as server:
        rows = await measure(server, texts, [WAIT_3], EN_DE, 2, lambda _: None, tmp_path)
    assert [row["policy"] for row in rows] == ["whole texts, greedy", "whole texts, beam 4", "wait_k"]
    assert rows[0]["bleu"] == rows[2]["bleu"] == pytest.approx(100)
    assert rows[2]["lost, whole texts, greedy"] == 0
    assert rows[2]["laal_words"] == pytest.approx(2)
    logs = (tmp_path / "words-wait-k-3" / "ms" / "instances.log").read_text(encoding="utf-8").splitlines()
    first = json.loads(logs[0])
    assert first["delays"] == [word.end_ms for word in [*texts.speeches[0].words[1:], texts.speeches[0].words[-1]]]
    assert (first["prediction"], first["source_length"]) == (PAIRS[0][0].upper(), texts.speeches[0].milliseconds)


async def test_speakers_that_speak_at_once_keep_their_order():
    spoken = speeches([(f"{letter} b c", "") for letter in "uvwxyz"], "en")
    async with listening(Interpreter(1)) as address, connected(address) as server:
        talks = await speak_all(server, spoken, WAIT_3, EN_DE, 4)
    assert [each.words[0] for each in talks] == list("UVWXYZ")


def row(name: str, **values: Any) -> dict[str, Any]:
    return {"set": name, "policy": "wait_k", "lag_words": 3, **values}


def test_the_best_row_within_the_lag_decides():
    rows = [
        {"set": "a", "policy": "whole texts, greedy", "bleu": 30.0},
        {"set": "a", "policy": "whole texts, beam 4", "bleu": 31.0},
        row("a", bleu=20.0, laal_ms=900),
        row("a", bleu=28.5, laal_ms=1500, **{"lost, whole texts, greedy": 1.5, "lost, whole texts, beam 4": 2.5}),
        row("a", bleu=29.9, laal_ms=1501),
        row("b", bleu=29.9, laal_ms=1501),
    ]
    assert best_within_lag(rows, "a") == rows[3]
    assert best_within_lag(rows, "b") is None
    assert [line.partition(":")[0] for line in verdicts("quality", rows)] == ["met", "missed", "missed"]


def test_cost_and_latency_have_bars():
    assert verdicts("cost", [{"set": "a", "share": 0.33, "share of greedy": 0.34}]) == [
        "met: a: 0.33 of the CPU time of Translate at every word, bar 0.33",
        "missed: a: 0.34 of the CPU time of greedy Translate at every word, bar 0.33",
    ]
    loads = [
        {"set": "a", "p99_ms": 300.0, "errors": {}},
        {"set": "b", "p99_ms": 300.1, "errors": {}},
        {"set": "c", "p99_ms": None, "errors": {}},
        {"set": "d", "p99_ms": 1.0, "errors": {"UNAVAILABLE": 1}},
    ]
    assert [line.partition(":")[0] for line in verdicts("load", loads)] == ["met", "missed", "missed", "missed"]


def test_the_picture_names_every_policy(tmp_path: Path):
    whole = [{"set": "a", "policy": f"whole texts, {name}", "bleu": 30.0} for name in ("greedy", "beam 4")]
    rows = [*whole, row("a", bleu=20.0, laal_ms=900, erasure=0.5)]
    results = tmp_path / "live.json"
    results.write_text(json.dumps({"rows": rows, "sets": [{"set": "a", "texts": 2, "words": 9}]}))
    main([str(results)])
    drawn = (tmp_path / "live.svg").read_text(encoding="utf-8")
    for name in ("a, 4 words a text", "wait-k", "whole texts, beam 4", "seconds behind the speaker", "words erased"):
        assert name in drawn
    draw(rows, tmp_path / "again.svg", [{"set": "a", "texts": 2, "words": 9}])
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == drawn


def test_an_endless_speech_goes_on_without_pauses():
    spoken = speeches(PAIRS, "en")
    words = [word for word, _ in zip(endless(spoken, 1), range(13), strict=False)]
    assert [each.word.text for each in words] == ["It", "rains.", *"abcdef", *PAIRS[0][0].split(" ")]
    assert words[1].so_far == ["It", "rains."]
    assert words[2].so_far == ["a"]
    assert all(before.word.end_ms == after.word.begin_ms for before, after in itertools.pairwise(words))


def load(address: str, **values: Any) -> LiveLoad:
    own: dict[str, Any] = {"speakers": 6, "seconds": 1.0, "warm_up": 0.1, "policy": WAIT_3, "languages": EN_DE}
    return LiveLoad(address=address, pid=os.getpid(), **{**own, **values})


async def test_every_word_of_a_load_is_answered_and_counted():
    async with listening(Interpreter(2)) as address:
        found = await run(load(address), speeches(PAIRS, "en"))
    assert found["words"] > 6
    assert (found["unanswered"], found["errors"]) == (0, {})
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert found["p50_ms"] < found["agreed_p50_ms"]  # agreed words wait for two more
    assert found["server_cpu_ms_per_word"] > 0


async def test_a_word_without_an_answer_has_no_latency():
    async with listening(Interpreter(2, silent_from=0)) as address:
        found = await run(load(address, patience=0.2), speeches(PAIRS, "en"))
    assert found["unanswered"] == found["words"] > 0
    assert found["p50_ms"] is None
    assert found["errors"] == {"no answer": 6}


@pytest.mark.parametrize(("mode", "beam_size"), [(AGAIN_GREEDY, 1), (AGAIN, 0)])
async def test_a_client_without_live_translation_sends_the_text_so_far_with_each_word(mode: str, beam_size: int):
    service = Interpreter(2)
    async with listening(service) as address:
        found = await run(load(address, mode=mode), speeches(PAIRS[1:2], "en"))
    assert service.beam_sizes == {beam_size}
    assert set(service.texts) == {"It", "It rains."}
    assert (found["unanswered"], found["errors"]) == (0, {})


def test_an_update_answers_the_words_that_waited_for_it():
    heard = Heard(words=4, answered=[10.0, 20.0, 30.0], agreed=[40.0], late=[0.1])
    found = figures(load("here"), heard, server_cpu=0.5, own_cpu=0.1)
    assert (found["p50_ms"], found["p99_ms"], found["unanswered"]) == (20.0, None, 1)
    assert (found["server_cpu_ms_per_word"], found["agreed_p99_ms"]) == (125.0, 40.0)


async def test_a_job_runs_in_a_process_of_its_own():
    async with listening(Interpreter(1)) as address:
        job = json.loads(json.dumps(to_json(load(address, seconds=0.5), speeches(PAIRS, "en"))))
        found = await asyncio.to_thread(answer, **job)
    assert (found["mode"], found["unanswered"]) == (LIVE, 0)
