"""Laws of a speaker, on the shipped model: agreed text stays, and all of it is the translation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lingon.bundle.store import find_model, open_bundle
from lingon.errors import EngineLost, InvalidRequest, Unsupported
from lingon.serving.in_process import LIMITS
from lingon.serving.live import speaker
from lingon.serving.live.complete_sentences import CompleteSentences, Request
from lingon.serving.live.pasts import Pasts
from lingon.serving.live.rounds import Rounds
from lingon.serving.live.sources import LiveSource, Sentence
from lingon.serving.live.speaker import Observer, Speaker
from lingon.serving.live.translating import OpenTranslation
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.shipped_model import MODEL

POLICIES = [
    pb.LIVE_POLICY_LOCAL_AGREEMENT,
    pb.LIVE_POLICY_WAIT_K,
    pb.LIVE_POLICY_ALIGNMENT,
    pb.LIVE_POLICY_SENTENCES,
]
PLAIN = ["the", "old", "man", "lives.", "in", "Boston", "a", "dog,", "why?", "\u200b"]
WORDS = st.sampled_from([*PLAIN, "1999", "x.y/z", "{name}", "`ls", "-l`", "**a", "b**", "Nguyễn"])
CHANGES = st.lists(st.tuples(st.integers(0, 2), st.lists(WORDS, max_size=4), st.sampled_from("wwwwp")), max_size=12)


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    found = load_translator(open_bundle(find_model(MODEL)), LoadOptions(limits=LIMITS))
    yield found
    found.engine.stop(0)


def words(first: int, *texts: str) -> pb.TranslateLiveRequest:
    message = pb.LiveWords(words=[pb.LiveWord(text=text) for text in texts])
    setattr(message, "from", first)
    return pb.TranslateLiveRequest(words=message)


PAUSE, END = pb.TranslateLiveRequest(pause=pb.LivePause()), pb.TranslateLiveRequest(end=pb.LiveEnd())


async def talk(
    translator: Translator,
    messages: Sequence[pb.TranslateLiveRequest],
    *,
    yields: int = 0,
    paced: bool = False,
    at_once: bool = False,
    pasts: Pasts | None = None,
    rounds: Rounds | None = None,
    observer: Observer | None = None,
    **fields: Any,
) -> list[pb.TranslateLiveResponse]:
    """Return all answers to a speaker; fields: of its start.

    yields: iterations of the loop between two messages, in which updates begin
    paced: whether the speaker waits for the update of its words, or of its pause, before it goes on
    at_once: whether no update begins before the last message
    """
    answered, all_sent = asyncio.Condition(), asyncio.Event()
    replies: list[pb.TranslateLiveResponse] = []

    @asynccontextmanager
    async def open_model() -> AsyncIterator[Translator]:
        if at_once and replies:  # the answer that the model is ready comes before any message
            await all_sent.wait()
        yield translator

    async def sent() -> AsyncIterator[pb.TranslateLiveRequest]:
        for number, message in enumerate(messages, 1):
            if number == len(messages):
                all_sent.set()
            yield message
            count = getattr(message.words, "from") + len(message.words.words)
            for _ in range(yields):
                await asyncio.sleep(0)
            async with answered:
                if paced and message.HasField("words"):
                    await answered.wait_for(lambda count=count: replies[-1].update.words == count)
                elif paced and message.HasField("pause"):
                    await answered.wait_for(lambda: replies[-1].update.is_complete)

    speaker = Speaker(pb.LiveStart(**fields), open_model, pasts=pasts, rounds=rounds, observer=observer)
    async with aclosing(speaker.talk(sent())) as found:
        async for reply in found:
            async with answered:
                replies.append(reply)
                answered.notify_all()
    return replies


def updates_of(replies: Sequence[pb.TranslateLiveResponse]) -> list[pb.LiveUpdate]:
    assert replies[0].HasField("ready")
    assert replies[-1].HasField("done")
    return [reply.update for reply in replies[1:-1]]


def spoken(changes: Sequence[tuple[int, list[str], str]]) -> list[pb.TranslateLiveRequest]:
    """Return the messages of words that go back by some words, with pauses."""
    messages, count = [], 0
    for back, texts, kind in changes:
        first = max(count - back, 0)
        messages.append(words(first, *texts))
        count = first + len(texts)
        if kind == "p":
            messages.append(PAUSE)
    return messages


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=CHANGES,
    yields=st.sampled_from([0, 60, 400]),
    lag_words=st.sampled_from([0, 1]),  # with 1, most drafts are agreed in part
    agreed_only=st.booleans(),
)
def test_agreed_text_stays_and_covers_every_word(
    translator: Translator, policy: int, changes: list[Any], yields: int, lag_words: int, agreed_only: bool
):
    messages = [*spoken(changes), END]
    try:
        replies = asyncio.run(
            talk(translator, messages, yields=yields, policy=policy, lag_words=lag_words, agreed_only=agreed_only)
        )
    except InvalidRequest:  # a revision removed words of a complete sentence, which stay, so that the caller miscounts
        return
    updates = updates_of(replies)
    covered = sentence = reached = 0
    for update in updates:
        assert update.sentence == sentence  # no complete sentence is touched again
        assert min(covered, update.words) <= update.agreed_words <= update.words
        assert update.first_word <= update.words
        assert not (agreed_only and update.tentative)
        assert not update.failure
        assert update.agreed == update.agreed.rstrip()
        covered = update.agreed_words
        if update.is_complete:
            assert (update.first_word, update.tentative, update.agreed_words) == (reached, "", update.words)
            sentence, reached = sentence + 1, update.words
    assert reached == replies[-1].done.words


@pytest.mark.parametrize("policy", POLICIES)
async def test_every_update_with_tentative_text_says_what_a_caller_shows(translator: Translator, policy: int):
    texts = ["the", "fox", "jumps", "over", "a", "dog.", "my", "box", "jumps", "over", "the", "fox.", "a", "dog"]
    messages = [*(words(at, text) for at, text in enumerate(texts)), END]
    updates = updates_of(await talk(translator, messages, paced=True, policy=policy))
    assert [update.words for update in updates if update.is_complete] == [6, 12, 14]
    assert any(update.tentative for update in updates)
    agreed = "".join(update.agreed for update in updates)
    assert agreed == agreed.strip()


async def test_sentences_without_agreement_are_translated_as_any_text(translator: Translator):
    texts = ["the fox jumps.", "my box has 1999 dogs."]
    messages = [words(0, *" ".join(texts).split()), END]
    updates = updates_of(await talk(translator, messages, policy=pb.LIVE_POLICY_SENTENCES))
    reply = await translator.translate(pb.TranslateRequest(texts=texts))
    expected = [result.hypotheses[0].text for result in reply.results]
    assert [update.agreed.strip() for update in updates if update.is_complete] == expected


KEPT = [
    ("The old man lives in a small house and writes to tom@example.com every day.", ["tom@example.com"]),
    ("If you want to see all of the files, call `ls -la` in this folder.", ["`ls -la`"]),
    ("We have sold the small house in Boston for 1,250,000 dollars in 2019.", ["1,250,000", "2019"]),
    ("I would like to tell you that Nguyễn lives here.", ["Nguyễn"]),
    ("When you have opened the file, replace {name} and {count}.", ["{name}", "{count}"]),
]


@pytest.mark.parametrize("policy", POLICIES)
async def test_strings_are_kept_behind_agreed_text(translator: Translator, policy: int):
    behind = 0
    for text, strings in KEPT:
        messages = [*(words(at, word) for at, word in enumerate(text.split())), END]
        updates = updates_of(await talk(translator, messages, paced=True, policy=policy, lag_words=1))
        agreed = [update.agreed for update in updates]
        behind += any(agreed[:-1]) and any(string not in "".join(agreed[:-1]) for string in strings)
        assert [("".join(agreed).count(string), string) for string in strings] == [(1, string) for string in strings]
    assert behind >= 4 or policy == pb.LIVE_POLICY_SENTENCES


async def test_states_are_forgotten_at_the_end_of_a_sentence(translator: Translator):
    pasts = Pasts(1 << 24)
    messages = [*(words(at, text) for at, text in enumerate(["the", "fox", "jumps", "over", "a", "dog"])), END]
    await talk(translator, messages, paced=True, pasts=pasts)
    assert (len(pasts), pasts.size) == (0, 0)


@pytest.mark.parametrize("policy", POLICIES)
async def test_speakers_of_the_same_rounds_get_what_each_gets_alone(translator: Translator, policy: int):
    texts = [
        "The old man lives in a small house. He has a dog.",
        "Tom has never been to Boston in winter.",
        "Why did you not tell me that it is raining? I would have",
        "A fox jumps.",
    ]
    talks = [[*(words(at, word) for at, word in enumerate(text.split())), END] for text in texts]
    alone = [await talk(translator, messages, paced=True, policy=policy, pause_ms=60_000) for messages in talks]
    rounds = Rounds()
    with ExitStack() as stack:
        for _ in talks:
            stack.enter_context(rounds.speaking())
        together = await asyncio.gather(
            *(
                talk(translator, messages, paced=True, policy=policy, rounds=rounds, pause_ms=60_000)
                for messages in talks
            )
        )
    for found in (*alone, *together):  # such as a lack of memory, which is retried and named
        assert not any(reply.update.failure for reply in found)
    assert list(together) == alone


async def test_only_a_sure_draft_of_all_words_is_the_translation_of_a_sentence_and_is_that_of_a_beam(
    translator: Translator,
):
    taken = []
    for text in ("Tom has never been to Boston.", "Why did you not tell me that it is raining outside?", "He ran off"):
        source = LiveSource("en", 60)
        source.replace(0, text.split())
        source.pause()
        translation = OpenTranslation(translator, Request())
        sentence = source.sentence(translation.reads)
        draft = await translation.draft(sentence, 1.0, looks=False)
        agreed = translation.agree(draft, draft.word_ends[0])
        written = translation.usage.target_tokens
        whole = await translation.whole(sentence)
        taken.append(translation.usage.target_tokens == written)
        again = OpenTranslation(translator, Request(), agreed)
        assert whole == await again.whole(sentence) or not taken[-1]
        assert again.usage.target_tokens > 0, "without a draft it is decoded"
    assert {*taken} == {True, False}


async def test_a_sentence_that_is_revised_after_it_was_begun_with_others_is_translated_as_it_is_then(
    translator: Translator,
):
    sentences = [Sentence(2 * at, text, (1, 2), is_complete=True) for at, text in enumerate(["a fox.", "my box.", ""])]
    complete = CompleteSentences(translator, Request())
    complete.begin(sentences)
    assert [complete.has_begun(first) for first in (0, 2, 4)] == [True, True, False]
    revised = replace(sentences[1], text="my dog.")
    found = [await complete.result(each) for each in (sentences[0], revised)]
    reply = await translator.translate(pb.TranslateRequest(texts=["a fox.", "my dog."]))
    assert [each.hypotheses[0].text for each in found] == [each.hypotheses[0].text for each in reply.results]
    assert not complete.has_begun(2)
    complete.close()


@pytest.mark.parametrize("policy", [pb.LIVE_POLICY_LOCAL_AGREEMENT, pb.LIVE_POLICY_SENTENCES])
async def test_an_error_that_does_not_pass_ends_a_speaker(
    translator: Translator, policy: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(speaker, "MOST_RETRY_SECONDS", 0.05)
    dead = translator.with_engine(translator.engine.restarted(), LIMITS, None)
    dead.engine.fail_all()
    for messages in ([words(0, "a", "fox")], [words(0, "a", "fox.", "my", "dog.", "I")]):
        with pytest.raises(EngineLost):
            await talk(dead, [*messages, END], policy=policy)


class Counts:
    """An Observer that counts."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.replaced = self.words = 0

    def updated(self, kind: str, seconds: float | None, replaced: int) -> None:
        self.kinds.append(kind)
        self.replaced += replaced

    def agreed(self, words: int) -> None:
        self.words += words


async def test_words_that_come_before_the_turn_of_an_update_replace_it(translator: Translator):
    counts = Counts()
    messages = [words(at, "fox") for at in range(12)]
    await talk(translator, [*messages, END], observer=counts, at_once=True)
    assert (counts.kinds, counts.replaced, counts.words) == (["complete"], 11, 12)


async def test_no_words_have_no_updates(translator: Translator):
    for messages in ([END], [], [PAUSE, END], [words(0), END]):
        replies = await talk(translator, messages)
        assert updates_of(replies) == []
        assert replies[-1].done == pb.LiveDone(words=0, usage=pb.Usage())


@pytest.mark.parametrize("policy", POLICIES)
async def test_words_without_text_are_counted_and_have_no_translation(translator: Translator, policy: int):
    messages = [words(0, "the", "fox"), words(0, "\u200b"), words(1, "\u200b"), words(0), words(0, "\u2060"), END]
    replies = await talk(translator, messages, yields=400, policy=policy, lag_words=1)
    updates = updates_of(replies)
    assert not any(update.failure for update in updates)
    assert updates[-1].is_complete
    assert not updates[-1].tentative
    assert replies[-1].done.words == 1


async def test_tentative_text_leaves_with_its_words(translator: Translator):
    messages = [words(0, "the", "fox"), words(0), words(0, "dog"), END]
    updates = updates_of(await talk(translator, messages, paced=True))
    assert [(bool(update.tentative), update.words) for update in updates][:2] == [(True, 2), (False, 0)]


async def test_words_that_are_sent_again_and_again_do_not_stop_a_speaker(translator: Translator):
    again = [words(0, "the", "fox")] * 200
    for messages in ([*again, words(2, "jumps"), END], [*[words(0)] * 200, *again, words(2, "jumps"), END]):
        updates = updates_of(await talk(translator, messages, yields=20, pause_ms=60_000))
        assert [update.words for update in updates if update.is_complete] == [3]
        assert not any(update.late_words for update in updates)


async def test_words_behind_a_complete_sentence_that_come_too_late_are_counted(translator: Translator):
    messages = [words(0, "the", "fox."), PAUSE, words(0, "a", "dog."), END]
    updates = updates_of(await talk(translator, messages, paced=True))
    assert sum(update.late_words for update in updates) == 2


async def test_many_words_at_once_are_all_translated(translator: Translator):
    messages = [words(first, *["fox", "jumps."] * 500) for first in range(0, 5000, 1000)]
    replies = await talk(translator, [*messages, END], policy=pb.LIVE_POLICY_SENTENCES, agreed_only=True)
    assert replies[-1].done.words == 5000
    assert sum(update.is_complete for update in updates_of(replies)) == 2500


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"pause_ms": 100}, InvalidRequest, "start.pause_ms must be 0 or 200 to 60000, got 100"),
        ({"lag_words": 30}, InvalidRequest, "start.lag_words must be 0 to 20, got 30"),
        ({"policy": 77}, InvalidRequest, "start.policy has no value 77"),
        ({"terms": [pb.Term(source="a", target="b")]}, Unsupported, "start.terms need"),
        ({"glossaries": ["mine"]}, Unsupported, "start.glossaries need"),
    ],
)
async def test_what_is_wrong_at_the_start_is_refused(
    translator: Translator, fields: dict[str, Any], error: type[Exception], message: str
):
    with pytest.raises(error) as caught:
        await talk(translator, [END], **fields)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (words(1, "a"), "words.from must be at most 0, got 1"),
        (pb.TranslateLiveRequest(start=pb.LiveStart()), "a message after the first must be words, pause or end"),
        (words(0, *["a"] * 1001), "words.words must be at most 1000, got 1001"),
    ],
)
async def test_a_wrong_message_ends_the_speaker_after_the_words_before_it(
    translator: Translator, message: pb.TranslateLiveRequest, expected: str
):
    with pytest.raises(InvalidRequest) as caught:
        await talk(translator, [message])
    assert expected in str(caught.value)


async def test_no_sentence_of_a_speaker_goes_to_the_second_translator(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
):
    never, second = list[bool](), Translator._second

    def noting(self: Translator, request: Any, *args: Any) -> Any:
        never.append(request.second.never)
        return second(self, request, *args)

    monkeypatch.setattr(Translator, "_second", noting)
    await talk(translator, [words(0, "fox"), END], at_once=True)
    await talk(translator, [words(0, "a", "fox.", "my", "dog.", "I"), END], at_once=True)
    assert never == [True, True]  # the sentences of the second speaker are one request
