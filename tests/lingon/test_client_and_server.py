"""The clients against the real server, over a real socket and with an echo as the runner."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lingon import AsyncClient, Client, ServerError, TextDelta, TextDone
from lingon.cli.main import main
from tests.support.echo_engine import running

TEXTS = ["Tom lives in Boston.", "The old man", "Grüße 😀", "what time it is"]

Ask = Callable[..., Awaitable[Any]]


async def test_more_texts_than_a_request_takes_come_back_in_order(ask: Ask) -> None:
    texts = [f"Tom lives in Boston {number}" for number in range(23)]
    async with running(max_texts=5) as server:
        results = await ask(server, "translate", texts, return_tokens=True, return_alignment=True)
    assert [result.text for result in results] == texts
    assert all(result.best.tokens and result.best.alignment for result in results)
    assert {(result.model, result.version) for result in results} == {("en-de", "1")}


async def test_a_list_is_cut_so_that_the_queue_can_hold_a_request(ask: Ask) -> None:
    texts = [f"Tom lives in Boston {number}" for number in range(9)]
    async with running(max_queue_texts=4) as server:
        results = await ask(server, "translate", texts)
    assert [result.text for result in results] == texts


async def test_a_text_too_large_for_a_message_fails_no_other(ask: Ask) -> None:
    texts = ["Tom", "Tom lives " * 200, "The old man", "Boston", "what time"]
    async with running(max_message_bytes=1024) as server:
        results = await ask(server, "translate", texts)
        scores = await ask(server, "score", [(text, "Tom") for text in texts])
        told = r"is too large: its request has 2,0\d\d bytes, the server takes 1,024 at most; split it$"
        with pytest.raises(ServerError, match=told) as caught:
            await ask(server, "translate", texts[1])
    assert [None if result.error else result.text for result in results] == ["Tom", None, *texts[2:]]
    for error in (results[1].error, scores[1].error, caught.value):
        assert (error.status, error.reason) == ("INVALID_ARGUMENT", "TEXT_TOO_LONG")
    assert [score.error is None for score in scores] == [True, False, True, True, True]


async def test_sentences_that_exceed_the_queue_are_sent_in_several_requests(ask: Ask) -> None:
    texts = ["Tom. " * 6, "Boston. " * 5, "Tom. " * 12, "The sea. " * 3]
    async with running(max_queue_texts=10) as server:
        results = await ask(server, "translate", texts)
        with pytest.raises(ServerError, match="11 sentences or more; a request may have 10 at most") as caught:
            await ask(server, "translate", texts[2], alternatives=2)
    assert [result.text for result in results] == texts
    assert caught.value.reason == "REQUEST_TOO_LARGE"


async def test_the_sentences_of_a_text_are_spans_of_the_callers_own_text(ask: Ask) -> None:
    text = " Tom  lives.\n\nThe\u200b sea."
    async with running() as server:
        whole, split, wrapped = [
            await ask(server, "translate", text.replace("\n\n", "\n"), split_sentences=way, return_sentences=True)
            for way in ("off", "on", "nonewlines")
        ]
        result = await ask(server, "translate", text, return_sentences=True)
    assert result.text == " Tom lives.\n\nThe sea."
    assert [text[slice(*each.source)] for each in result.sentences] == ["Tom  lives.", "The\u200b sea."]
    assert [result.text[slice(*each.target)] for each in result.sentences] == ["Tom lives.", "The sea."]
    assert result.score == pytest.approx(sum(each.score for each in result.sentences))
    assert [len(each.sentences) for each in (whole, split, wrapped)] == [1, 2, 2]


async def test_a_bad_text_has_its_reason(ask: Ask) -> None:
    async with running() as server:
        good, long = await ask(server, "translate", ["Tom", "Tom " * 500], long_text="refuse")
        with pytest.raises(ServerError) as caught:
            await ask(server, "translate", "Tom " * 500, long_text="refuse")
    assert (good.text, long.error.reason) == ("Tom", "TEXT_TOO_LONG")
    assert caught.value.reason == "TEXT_TOO_LONG"


async def test_a_text_with_nothing_to_translate_is_its_own_translation_and_says_so(ask: Ask) -> None:
    texts = ["", "Tom", " \n", "\u200b\x07", "<p> </p>"]
    async with running() as server:
        plain = await ask(server, "translate", texts, return_tokens=True, return_sentences=True, target_prefix="Tom")
        markup = await ask(server, "translate", texts, format="html", num_hypotheses=2, beam_size=2, guard="refuse")
        alone = await ask(server, "translate", "")
    assert [each.text for each in (*plain[:4], *markup)] == [*texts[:4], *texts]
    assert [each.text for each in markup[4].translations] == ["<p> </p>"] * 2
    for empty in (alone, plain[0], *plain[2:4], *markup[2:]):
        assert (empty.error, empty.score, empty.best.tokens, empty.best.finish_reason) == (None, 0, (), "end")
        assert (empty.source_tokens, empty.target_tokens, empty.sentences) == (0, 0, ())
        assert [each.code for each in empty.warnings] == ["empty_source"]
    assert "empty_source" not in [each.code for each in plain[1].warnings]


async def test_a_pair_without_source_has_no_score_and_one_without_target_that_of_its_end(ask: Ask) -> None:
    async with running() as server:
        scored = await ask(server, "score", [("", "Tom"), ("Tom", " "), ("\u200b", ""), ("Tom", "Tom")])
    assert [each.log_prob for each in scored] == [0, -0.25, 0, -0.25 * len(scored[3].tokens)]
    assert [[token.piece for token in each.tokens] for each in scored[:3]] == [[], ["</s>"], []]
    codes = [[warning.code for warning in each.warnings] for each in scored]
    assert codes == [["empty_source"], ["empty"], ["empty_source"], []]


async def test_a_bad_request_names_its_field_and_the_request(ask: Ask) -> None:
    async with running() as server:
        with pytest.raises(ServerError) as caught:
            await ask(server, "translate", "Tom", beam_size=99)
    error = caught.value
    assert (error.status, error.reason, error.violations[0][0]) == (
        "INVALID_ARGUMENT",
        "INVALID_FIELD",
        "options.beam_size",
    )
    assert error.request_id


async def test_the_deltas_of_a_stream_joined_are_its_texts(ask: Ask) -> None:
    async with running(max_texts=3) as server:
        events = await ask(server, "translate_stream", TEXTS)
    joined = {
        place: "".join(event.text for event in events if isinstance(event, TextDelta) and event.index == place)
        for place in range(len(TEXTS))
    }
    assert joined == dict(enumerate(TEXTS))
    assert {event.index: event.result.text for event in events if isinstance(event, TextDone)} == joined


async def test_pairs_are_scored_and_models_and_health_are_reported(ask: Ask) -> None:
    async with running() as server:
        (scored,) = await ask(server, "score", [("Tom", "Tom")], return_alignment=True)
        (model,) = await ask(server, "list_models")
        state = await ask(server, "health")
    assert scored.log_prob == pytest.approx(sum(token.log_prob for token in scored.tokens), abs=1e-4)
    assert (model.name, model.source_language, model.target_language, state) == ("en-de", "en", "de", "SERVING")


async def test_a_server_that_is_starting_is_waited_for(ask: Ask) -> None:
    async with running(ready=False) as server:
        call = asyncio.ensure_future(ask(server, "translate", "Tom", client={"retries": 20}))
        await asyncio.sleep(0.3)
        assert not call.done()
        server.loader.gate.set()
        result = await call
    assert result.text == "Tom"


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_calls_are_spread_over_the_addresses_of_a_name(kind: str) -> None:
    async with running() as one, running() as other:
        target = f"ipv4:127.0.0.1:{one.server.port},127.0.0.1:{other.server.port}"
        with Client(target) as client:
            asynchronous = AsyncClient(target)
            translate = partial(asyncio.to_thread, client.translate) if kind == "sync" else asynchronous.translate

            async def shares_after(count: int) -> list[float]:
                for _ in range(count):
                    await translate("Tom")
                answered = ("lingon_requests_total", {"method": "Translate", "code": "OK"})
                return [each.server.metrics.registry.get_sample_value(*answered) or 0.0 for each in (one, other)]

            async with asyncio.timeout(10):  # until both are connected
                while min(before := await shares_after(1)) == 0:
                    pass
            after = await shares_after(20)
            await asynchronous.close()
    assert [later - earlier for earlier, later in zip(before, after, strict=True)] == [10, 10]


async def test_errors_of_lines_name_lines_and_flags_instead_of_fields(tmp_path: Path, capfd: Any) -> None:
    files = {"source": ["Tom", "", "\u200b", "Tom " * 200, "Tom"], "target": ["Tom", "\u200b", "", "Tom", ""]}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    async with running() as server:
        there = ["--server", f"127.0.0.1:{server.server.port}"]

        async def lingon(*arguments: str) -> tuple[int, list[str], list[str]]:
            code = await asyncio.to_thread(main, [*arguments, *there])
            printed, told = capfd.readouterr()
            return code, printed.splitlines(), told.splitlines()

        code, printed, told = await lingon("translate", "--no-split-long", "--input", str(tmp_path / "source"))
        assert (code, printed) == (1, ["Tom", "", "", "", "Tom"])
        assert len(told) == 1
        assert re.match(r"lingon: line 4: has \d+ (tokens|characters)[;,] the model reads", told[0])
        assert told[0].endswith("; shorten it or leave out --no-split-long")
        code, printed, told = await lingon("score", *(f"--{name}={tmp_path / name}" for name in files))
        assert code == 1
        assert [bool(line) for line in printed] == [True, False, False, False, True]
        assert [line.split(":")[1] for line in told] == [" line 4", " line 5"]
        assert told[0].endswith("; shorten it")
        assert told[1] == "lingon: line 5: warning: the target is empty: its score is that of its end token"
