"""`live` of `Client` and `AsyncClient` over a real socket, against a scripted speaker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from lingon import AsyncClient, Client, LiveUpdate, LiveWord, ServerError
from lingon.client.live import MOST_UNSENT, MOST_WORDS, Outgoing
from lingon.client.steps import Retry
from lingon.errors import LingonError, SettingsError
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.scripted_server import FakeService, ScriptedFault

QUICK = Retry(retries=3, first_pause=0.01)
UNAVAILABLE = ScriptedFault(grpc.StatusCode.UNAVAILABLE)
Step = tuple[str, Any]
Speak = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def speak(request: pytest.FixtureRequest, address: str) -> Speak:
    """speak(("send", "a text"), ("end",), target="de") with a new client of either kind: the call and its updates."""

    def with_client(*steps: Step, client: dict[str, Any] | None = None, **options: Any) -> Any:
        settings = {"target": address, "retries": QUICK, "timeout": 10.0, **(client or {})}
        if request.param == "async":
            return asyncio.run(speak_async(settings, steps, options))
        with Client(**settings) as sync, sync.live(**options) as live:
            for name, *values in steps:
                getattr(live, name)(*values)
            return live, list(live)

    return with_client


async def speak_async(settings: dict[str, Any], steps: tuple[Step, ...], options: dict[str, Any]) -> Any:
    async with AsyncClient(**settings) as client, client.live(**options) as live:
        for name, *values in steps:
            await getattr(live, name)(*values)
        return live, [update async for update in live]


def words_of(service: FakeService) -> list[tuple[int, list[str]]]:
    """The messages with words that arrived."""
    arrived = [each.words for each in service.requests if each.WhichOneof("message") == "words"]
    return [(getattr(each, "from"), [word.text for word in each.words]) for each in arrived]


def test_the_agreed_parts_joined_are_the_translation(speak: Speak) -> None:
    live, updates = speak(("send", "I would like"), ("send", "a cup of tea."), ("send", "Tom is"), ("end",))
    assert "".join(each.agreed for each in updates) == live.agreed == "I WOULD LIKE A CUP OF TEA. TOM IS"
    assert updates[0] == LiveUpdate(
        agreed="I WOULD", tentative=" LIKE", sentence=0, is_complete=False, words=3, first_word=0, agreed_words=2
    )
    assert [each.sentence for each in updates if each.is_complete] == [0, 1]


def test_the_start_has_the_options_and_its_answer_says_how_words_are_translated(
    speak: Speak, service: FakeService
) -> None:
    terms = {"tea": "Tee"}
    live, _ = speak(
        ("end",), source="en", target="fr", policy="alignment", lag_words=4, pause_ms=900, agreed_only=True, terms=terms
    )
    start = service.requests[0].start
    assert (start.source_language_code, start.target_language_code, start.lag_words, start.pause_ms) == (
        "en",
        "fr",
        4,
        900,
    )
    assert (start.policy, start.agreed_only, [each.source for each in start.terms]) == (
        pb.LIVE_POLICY_ALIGNMENT,
        True,
        ["tea"],
    )
    ready = live.ready
    assert (ready.model, ready.version, ready.target_language, ready.policy, ready.lag_words) == (
        "en-de",
        "1",
        "fr",
        "alignment",
        4,
    )


def test_words_are_counted_from_the_start_and_a_revision_goes_back(speak: Speak, service: FakeService) -> None:
    live, _ = speak(("send", "one too"), ("revise", 1, ["two", "three"]), ("send", "four"), ("revise", 2, []), ("end",))
    assert words_of(service) == [(0, ["one", "too"]), (1, ["two", "three"]), (3, ["four"]), (2, [])]
    assert live.words == 2


def test_words_have_their_times(speak: Speak, service: FakeService) -> None:
    speak(("send", [LiveWord("well,", 100, 250), "then"]), ("end",))
    first, second = service.requests[1].words.words
    assert ((first.begin_ms, first.end_ms), (second.begin_ms, second.end_ms)) == ((100, 250), (0, 0))


def test_a_text_without_blanks_is_cut_at_its_characters(speak: Speak, service: FakeService) -> None:
    speak(("send", "我想喝茶。"), ("end",), source="zh")
    assert words_of(service) == [(0, ["我", "想", "喝", "茶", "。"])]


def test_many_words_are_several_messages(speak: Speak, service: FakeService) -> None:
    speak(("send", "w " * (2 * MOST_WORDS + 1)), ("end",))
    assert [(first, len(words)) for first, words in words_of(service)] == [
        (0, MOST_WORDS),
        (MOST_WORDS, MOST_WORDS),
        (2 * MOST_WORDS, 1),
    ]


def test_a_pause_completes_the_sentence(speak: Speak) -> None:
    _, updates = speak(("send", "no stop"), ("pause",), ("send", "more"), ("end",))
    assert [(each.agreed, each.is_complete) for each in updates if each.agreed] == [
        ("NO", False),
        (" STOP", True),
        (" MORE", True),
    ]


def test_the_end_says_what_was_read_and_written(speak: Speak) -> None:
    live, _ = speak(("send", "one two three"), ("end",))
    assert (live.done.words, live.done.source_tokens, live.done.target_tokens) == (3, 3, 3)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (("revise", 2, "three"), "first must be 0 to 1, the number of words so far, got 2"),
        (("revise", -1, "three"), "got -1"),
        (("send", ["two words"]), "words.0. must be one word without white space, got 'two words'"),
        (("send", [""]), "words.0. must be one word"),
        (("send", [3]), "words.0. must be a str or a lingon.LiveWord, got int"),
        (("send", 3), "words must be a str or an iterable of words, got int"),
        (("send", [LiveWord("one", -1)]), "begin_ms = -1"),
    ],
)
def test_words_that_cannot_be_sent_are_an_error_and_nothing_is_sent(
    step: Step, message: str, speak: Speak, service: FakeService
) -> None:
    with pytest.raises(SettingsError, match=message):
        speak(("send", "one"), step)
    assert words_of(service) in ([], [(0, ["one"])])


def test_no_words_are_sent_after_the_end(speak: Speak) -> None:
    with pytest.raises(LingonError, match="this speaker has ended"):
        speak(("end",), ("send", "one"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"policy": "guess"}, SettingsError, "policy must be one of local_agreement, wait_k"),
        ({"source": "auto"}, SettingsError, 'source must be a language for live translation, got "auto"'),
        ({"lag_words": -1}, SettingsError, "lag_words = -1"),
        ({"beam_size": 4}, TypeError, "unknown option 'beam_size'"),
        ({"timeout": 0}, SettingsError, "timeout"),
        ({"terms": {f"t{number}": "x" for number in range(201)}}, SettingsError, "terms must be 200 at most"),
    ],
)
def test_options_that_cannot_be_sent_are_an_error_before_the_call_begins(
    options: dict[str, Any], error: type[Exception], message: str, address: str
) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(error, match=message):
            kind(address).live(**options)


def test_a_call_is_begun_again_until_the_server_is_ready(speak: Speak, service: FakeService) -> None:
    service.faults = [UNAVAILABLE, UNAVAILABLE]
    live, _ = speak(("send", "one two."), ("end",))
    assert live.agreed == "ONE TWO."
    assert words_of(service) == [(0, ["one", "two."])]  # no call that failed has taken a word


def test_an_error_of_the_start_has_the_code_of_the_server(speak: Speak, service: FakeService) -> None:
    service.faults = [ScriptedFault(grpc.StatusCode.INVALID_ARGUMENT, "lag_words must be 1 to 20, got 21")]
    with pytest.raises(ServerError, match="lag_words must be 1 to 20, got 21") as caught:
        speak()
    assert caught.value.status == "INVALID_ARGUMENT"


def test_an_error_after_the_start_ends_the_updates(speak: Speak, service: FakeService) -> None:
    service.faults = [ScriptedFault(grpc.StatusCode.UNAVAILABLE, "the server is shutting down", after_events=2)]
    with pytest.raises(ServerError, match="the server is shutting down"):
        speak(("send", "one two"), ("send", "three"))
    assert len(service.faults) == 0


def test_words_for_a_call_that_failed_raise_its_error(speak: Speak, service: FakeService) -> None:
    service.faults = [ScriptedFault(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many words", after_events=1)]
    with pytest.raises(ServerError, match="too many words") as caught:
        speak(*[("send", "w")] * 100_000)  # more than wait unsent, so that one of them meets the end
    assert caught.value.status == "RESOURCE_EXHAUSTED"


def test_a_server_that_is_not_ready_in_time_is_an_error(speak: Speak, service: FakeService) -> None:
    service.delay = 2.0
    with pytest.raises(ServerError, match="was not ready after") as caught:
        speak(timeout=0.2)
    assert caught.value.status == "DEADLINE_EXCEEDED"
    assert service.speakers_left.acquire(timeout=30)  # the server learns of it


def test_leaving_the_block_ends_the_call(service: FakeService, address: str) -> None:
    with Client(address) as client:
        with client.live() as live:
            live.send("one two")
            assert next(iter(live)).agreed == "ONE"
        assert service.speakers_left.acquire(timeout=30)


async def test_leaving_the_block_ends_the_call_of_an_async_client(service: FakeService, address: str) -> None:
    async with AsyncClient(address) as client:
        async with client.live() as live:
            await live.send("one two")
            assert (await anext(aiter(live))).agreed == "ONE"
        assert await asyncio.to_thread(service.speakers_left.acquire, timeout=30)


async def test_a_task_that_is_cancelled_while_it_reads_ends_the_call(service: FakeService, address: str) -> None:
    async def listen() -> None:
        async with AsyncClient(address) as client, client.live() as live:
            await live.send("one two")
            async for update in live:
                heard.set_result(update)

    heard = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(listen())
    await heard
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(service.speakers_left.acquire, timeout=30)


def test_one_thread_sends_while_another_one_reads(address: str) -> None:
    with Client(address) as client, client.live() as live:

        def say() -> None:
            for number in range(3 * MOST_UNSENT):
                live.send(f"w{number}")
            live.end()

        thread = threading.Thread(target=say)
        thread.start()
        updates = list(live)
        thread.join()
    assert live.agreed.split()[-1] == f"W{3 * MOST_UNSENT - 1}"
    assert updates[-1].is_complete


def test_a_call_begins_once_and_in_a_block(address: str) -> None:
    with Client(address) as client:
        live = client.live()
        for use in (lambda: live.send("one"), lambda: live.ready, lambda: list(live)):
            with pytest.raises(LingonError, match="has not begun"):
                use()
        with live, pytest.raises(LingonError, match="has begun already"), live:
            pass


def test_a_sender_waits_while_many_messages_are_unsent_until_they_are_sent_or_the_call_ends() -> None:
    outgoing, put = Outgoing(pb.TranslateLiveRequest()), list[bool]()

    def fill() -> None:
        put.extend(outgoing.put(pb.TranslateLiveRequest()) for _ in range(MOST_UNSENT + 1))

    thread = threading.Thread(target=fill)
    thread.start()
    next(outgoing)  # one more has room
    thread.join(timeout=0.2)
    assert thread.is_alive()
    outgoing.end()
    thread.join(timeout=30)
    assert put == [True] * MOST_UNSENT + [False]
    assert list(outgoing) == []
