"""TranslateLive over a real socket: admission, bounds, charges, errors, drain, reload and speakers that vanish."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import pytest

from lingon.serving.auth.api_keys import new_key
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.credentials import write_key_file
from tests.support.echo_engine import RunningServer, failure, running
from tests.support.reload_harness import expected, running_with_admin_port
from tests.support.timing import eventually

TEXT = "The old man and the sea. Tom lives in Boston."
END = pb.TranslateLiveRequest(end=pb.LiveEnd())


def start(**fields: Any) -> pb.TranslateLiveRequest:
    return pb.TranslateLiveRequest(start=pb.LiveStart(**fields))


def words(first: int, *texts: str) -> pb.TranslateLiveRequest:
    message = pb.LiveWords(words=[pb.LiveWord(text=text) for text in texts])
    setattr(message, "from", first)
    return pb.TranslateLiveRequest(words=message)


async def talking(server: RunningServer, *messages: pb.TranslateLiveRequest, **options: Any) -> Any:
    """Return a call that has been answered that the server is ready, after which these messages were sent."""
    call = server.stub.TranslateLive(**options)
    await call.write(messages[0])
    assert (await call.read()).HasField("ready")
    for message in messages[1:]:
        await call.write(message)
    return call


async def rest_of(call: Any) -> list[pb.TranslateLiveResponse]:
    """Return the replies up to the end of the call, whose error is raised."""
    replies = []
    while (reply := await call.read()) is not grpc.aio.EOF:
        replies.append(reply)
    return replies


def agreed(replies: list[pb.TranslateLiveResponse]) -> str:
    return "".join(reply.update.agreed for reply in replies)


async def test_a_speaker_is_answered_word_by_word_and_the_agreed_text_is_the_translation():
    async with running() as server:
        call = await talking(server, start())
        replies = []
        for at, text in enumerate(TEXT.split()):
            await call.write(words(at, text))
            while not replies or replies[-1].update.words <= at:
                replies.append(await call.read())
        await call.write(END)
        replies += await rest_of(call)
        assert agreed(replies) == TEXT
        assert replies[-1].done.words == 10
        assert server.metric("lingon_live_updates_total", kind="complete") == 2
        assert server.metric("lingon_live_agreed_words_total") == 10
        assert server.metric("lingon_live_speakers") == 0
        assert server.metric("lingon_live_past_bytes") == 0
        calls = server.server.metrics.registry.get_sample_value
        assert calls("lingon_requests_total", {"method": "TranslateLive", "code": "OK"}) == 1
        durations = {"method": "TranslateLive", "outcome": "served"}  # a call lasts as long as its speaker
        assert calls("lingon_request_duration_seconds_count", durations) is None


async def test_closing_the_stream_ends_the_speaker_as_its_last_message():
    async with running() as server:
        call = await talking(server, start(), words(0, *TEXT.split()))
        await call.done_writing()
        assert agreed(await rest_of(call)) == TEXT


async def test_a_pause_after_the_last_word_completes_its_sentence():
    async with running() as server:
        call = await talking(server, start(pause_ms=200), words(0, "Tom", "lives"))
        found = ""
        while not (reply := await call.read()).update.is_complete:
            found += reply.update.agreed
        assert found + reply.update.agreed == "Tom lives"
        call.cancel()


@pytest.mark.parametrize(
    ("first", "code", "message"),
    [
        (words(0, "a"), "INVALID_ARGUMENT", "the first message must be start"),
        (start(source_language_code="auto"), "INVALID_ARGUMENT", "must name a language, got 'auto'"),
        (start(model="none"), "NOT_FOUND", "model 'none' is not served"),
        (start(glossaries=["mine"], policy=pb.LIVE_POLICY_SENTENCES), "UNIMPLEMENTED", "glossaries"),
    ],
)
async def test_a_wrong_start_ends_the_call(first: pb.TranslateLiveRequest, code: str, message: str):
    async with running() as server:
        call = server.stub.TranslateLive()
        await call.write(first)
        status, _ = await failure(rest_of(call))
    assert grpc.StatusCode[code].value[0] == status.code
    assert message in status.message


async def test_a_pair_without_a_model_of_its_own_is_unimplemented():
    other = {"name": "de-fr", "source_language": "de", "target_language": "fr"}
    async with running(bundles=({"target_language": "de"}, other), pivot_language="de") as server:
        call = server.stub.TranslateLive()
        await call.write(start(source_language_code="en", target_language_code="fr"))
        status, _ = await failure(rest_of(call))
    assert status.code == grpc.StatusCode.UNIMPLEMENTED.value[0]
    assert "TranslateLive needs a model that translates en to fr" in status.message


async def test_a_caller_has_at_most_its_speakers():
    async with running(live_speakers_of_caller=1) as server:
        first = await talking(server, start())
        call = server.stub.TranslateLive()
        await call.write(start())
        status, _ = await failure(rest_of(call))
        assert "a caller may have 1 speakers at once" in status.message
        await first.write(END)
        await rest_of(first)
        await talking(server, start())  # its place is free


async def test_words_are_charged_to_the_quota_of_the_key(tmp_path: Any):
    key = new_key()
    file = write_key_file(tmp_path, {"web": key}, web={"characters_per_minute": 100, "requests_per_minute": 1})
    metadata = (("authorization", f"Bearer {key}"),)
    async with running(api_keys=file) as server:
        call = await talking(server, start(), words(0, "Tom"), words(1, "lives"), metadata=metadata)
        await call.write(words(2, *["Boston"] * 20))
        status, _ = await failure(rest_of(call))
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "characters" in status.message


async def test_a_key_that_is_revoked_ends_its_speakers_with_their_next_words(tmp_path: Any):
    key = new_key()
    file = write_key_file(tmp_path, {"web": key})
    metadata = (("authorization", f"Bearer {key}"),)
    async with running(api_keys=file) as server:
        call = await talking(server, start(), words(0, "Tom", "lives"), metadata=metadata)
        await call.read()
        write_key_file(tmp_path, {"web": new_key()})
        async with asyncio.timeout(20):
            with suppress(grpc.aio.AioRpcError):  # once the server has read the file
                while True:
                    await server.stub.ListModels(pb.ListModelsRequest(), metadata=metadata)
        await call.write(words(2, "in"))
        replies = []

        async def hear() -> None:
            while True:
                replies.append(await call.read())

        status, _ = await failure(hear())
    assert status.code == grpc.StatusCode.UNAUTHENTICATED.value[0]
    assert status.message == "the API key is not known"
    assert replies[-1].update.is_complete


async def test_a_speaker_that_vanishes_leaves_nothing():
    async with running() as server:
        call = await talking(server, start(), words(0, "Tom", "lives"))
        await call.read()
        assert server.metric("lingon_live_speakers") == 1
        call.cancel()
        await eventually(lambda: server.metric("lingon_live_speakers") == 0)
        assert server.metric("lingon_live_past_bytes") == 0


async def test_a_server_that_shuts_down_translates_the_words_that_it_has():
    async with running() as server:
        call = await talking(server, start(pause_ms=60_000), words(0, *["Tom", "lives", "in", "Boston"]))
        await call.read()
        server.server.stop()
        replies = []
        while not (replies and replies[-1].update.is_complete):
            replies.append(await call.read())
        status, _ = await failure(call.read())
        assert status.code == grpc.StatusCode.UNAVAILABLE.value[0]
        assert replies[-1].update.is_complete
        assert replies[-1].update.agreed_words == 4
        assert await server.task == 0


def sentence(replies: list[pb.TranslateLiveResponse], number: int) -> str:
    return agreed([reply for reply in replies if reply.HasField("update") and reply.update.sentence == number]).strip()


async def said(call: Any, first: int, text: str) -> list[pb.TranslateLiveResponse]:
    """Say words, each when the one before it is translated, and return the updates."""
    replies = []
    for at, word in enumerate(text.split(), first):
        await call.write(words(at, word))
        while not replies or replies[-1].update.words <= at:
            replies.append(await call.read())
    return replies


async def test_a_sentence_ends_with_the_model_that_began_it_and_the_next_one_has_the_new_model():
    async with running_with_admin_port() as admin:
        call = await talking(admin.server, start())
        replies = await said(call, 0, "The old man and")
        swap = asyncio.create_task(admin.swap(admin.publish(2)))
        while await admin.version() != "2":  # other callers have the new model
            pass
        assert not swap.done()  # it waits for the sentence
        replies += await said(call, 4, "the sea. Tom lives in Boston.")
        await call.write(END)
        replies += await rest_of(call)
        assert list((await swap).unloaded) == ["en-de/1"]
        assert sentence(replies, 0) == expected("The old man and the sea.", 1)
        assert sentence(replies, 1) == expected("Tom lives in Boston.", 2)
        assert admin.server.metric("lingon_live_speakers") == 0


async def test_a_sentence_whose_model_is_unloaded_goes_on_with_the_new_one_after_what_is_agreed():
    async with running_with_admin_port(drain_seconds=0.1) as admin:
        call = await talking(admin.server, start())
        replies = await said(call, 0, "The old man and")
        before = agreed(replies)
        assert before == "The old"
        await admin.swap(admin.publish(2))  # the sentence is open for longer than the model is kept
        replies += await said(call, 4, "the sea. Tom lives in Boston.")
        await call.write(END)
        replies += await rest_of(call)
        assert sentence(replies, 0).startswith(before)
        assert sentence(replies, 0) != expected("The old man and the sea.", 1)
        assert sentence(replies, 1) == expected("Tom lives in Boston.", 2)
        assert replies[-1].done.words == 10


async def test_a_sentence_goes_on_with_the_engine_that_replaces_a_dead_one():
    async with running_with_admin_port() as admin:
        call = await talking(admin.server, start())
        replies = await said(call, 0, "The old man and")
        before, runner = agreed(replies), admin.versions.runners[1]
        assert before == "The old"
        runner.dies_at = runner.steps + 1
        replies += await said(call, 4, "the sea. Tom lives in Boston.")
        await call.write(END)
        replies += await rest_of(call)
        assert agreed(replies) == TEXT
        restarts = {"model": "en-de", "version": "1", "cause": "death"}
        assert admin.server.metric("lingon_engine_restarts_total", **restarts) == 1


async def test_the_sentences_of_one_message_are_decoded_together():
    async with running() as server:
        texts = [f"Tom lives in Boston {number}." for number in range(10)]
        await server.translate(texts[0])
        alone = server.runner.steps
        call = await talking(server, start(policy=pb.LIVE_POLICY_SENTENCES), words(0, *" ".join(texts).split()), END)
        replies = await rest_of(call)
        assert [sentence(replies, number) for number in range(10)] == texts
        assert server.runner.steps < 5 * alone
