"""A scripted live translator: it translates words to upper case, and agrees on all of a sentence but its last word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lingon.translation.v1 import translation_pb2 as pb


@dataclass
class ScriptedSpeaker:
    """The state of one speaker. A sentence ends with a word that ends with a full stop, at a pause and at the end.

    agreed: characters of the open sentence that were agreed
    """

    words: list[str] = field(default_factory=list)
    first: int = 0
    sentence: int = 0
    agreed: int = 0

    def answers(self, request: pb.TranslateLiveRequest) -> Iterator[pb.TranslateLiveResponse]:
        """Yield the answers to a message after `start`."""
        kind, late = request.WhichOneof("message"), 0
        if kind == "words":
            begin = getattr(request.words, "from")
            late = max(self.first - begin, 0)
            given = [each.text for each in request.words.words]
            self.words[max(begin, self.first) :] = given[late:]
        yield from self._updates(at_end=kind in ("pause", "end"), late=late)
        if kind == "end":
            usage = pb.Usage(source_tokens=len(self.words), target_tokens=len(self.words))
            yield pb.TranslateLiveResponse(done=pb.LiveDone(words=len(self.words), usage=usage))

    def _updates(self, *, at_end: bool, late: int) -> Iterator[pb.TranslateLiveResponse]:
        while True:
            ends = [place for place in range(self.first, len(self.words)) if self.words[place].endswith(".")]
            if ends:
                yield self._update(ends[0] + 1, late, complete=True)
            else:
                if self.first < len(self.words):
                    yield self._update(len(self.words), late, complete=at_end)
                return

    def _update(self, end: int, late: int, *, complete: bool) -> pb.TranslateLiveResponse:
        covered = end if complete else end - 1
        text, known, first = self._text(end), self._text(covered), self.first
        update = pb.LiveUpdate(
            agreed=known[self.agreed :],
            tentative=text[max(len(known), self.agreed) :],
            sentence=self.sentence,
            is_complete=complete,
            words=end,
            first_word=first,
            agreed_words=covered,
            late_words=late,
        )
        self.agreed = max(self.agreed, len(known))
        if complete:
            self.first, self.sentence, self.agreed = end, self.sentence + 1, 0
        return pb.TranslateLiveResponse(update=update)

    def _text(self, end: int) -> str:
        """Return the translation of the open sentence up to a word, with the space before it."""
        return "".join(f" {word.upper()}" if place else word.upper() for place, word in self._open(end))

    def _open(self, end: int) -> Iterator[tuple[int, str]]:
        return zip(range(self.first, end), self.words[self.first : end], strict=True)


def ready(start: pb.LiveStart, model: str, version: str) -> pb.TranslateLiveResponse:
    """Return the answer to the start of a speaker."""
    policy = start.policy or pb.LIVE_POLICY_LOCAL_AGREEMENT
    made = pb.LiveReady(
        model=model,
        version=version,
        source_language_code=start.source_language_code or "en",
        target_language_code=start.target_language_code or "de",
        policy=policy,
        lag_words=start.lag_words or 3,
    )
    return pb.TranslateLiveResponse(ready=made)


def talk(requests: Iterable[pb.TranslateLiveRequest], model: str, version: str) -> Iterator[pb.TranslateLiveResponse]:
    """Yield the answers to a speaker."""
    speaker, started = ScriptedSpeaker(), False
    for request in requests:
        if not started:
            started = True
            yield ready(request.start, model, version)
        else:
            yield from speaker.answers(request)
            if request.WhichOneof("message") == "end":
                return
