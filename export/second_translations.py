"""A text with references as a server translates it: by its own model, and with its second translator.

What the second translator answers is kept in a file as it arrives, because each answer costs time or money: a run that
ends before its time goes on where it was.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from lingon.errors import LingonError, SettingsError
from lingon.export.second_threshold import Candidate
from lingon.files import make_folders
from lingon.translation.v1 import translation_pb2 as pb

TEXTS = 64  # of a request to the own model
UNANSWERED = {pb.SECOND_RESULT_TIMED_OUT, pb.SECOND_RESULT_FAILED, pb.SECOND_RESULT_OVER_BUDGET}
"""What says nothing about the second translator's quality: such a sentence is asked again in the next run."""

Translate = Callable[[pb.TranslateRequest], Awaitable[pb.TranslateResponse]]
Progress = Callable[[int, int], object]


class Pair(NamedTuple):
    """A line and its translation by a person."""

    source: str
    reference: str


@dataclass(frozen=True, slots=True)
class Collected:
    """The sentences with answers, and why the other lines have none: counts by reason."""

    candidates: list[Candidate]
    left_out: Counter[str]


class AnswersFile:
    """The candidates of a run, one a line, behind a line that says what they are of."""

    def __init__(self, path: Path, head: dict[str, str]) -> None:
        """Open the file, or begin it.

        head: what the answers depend on, such as the models

        Raises SettingsError for a file of another head, and for one that is none.
        """
        self._path = path
        self.found: dict[Pair, Candidate] = {}
        make_folders(path.parent)
        if not path.exists():
            path.write_text(json.dumps(head) + "\n", encoding="utf-8")
            return
        lines = path.read_bytes().split(b"\n")
        try:
            begun, *records = [json.loads(line) for line in lines[:-1]]  # a run that was killed leaves half a line
            self.found = {Pair(each["source"], each["reference"]): Candidate(**each) for each in records}
        except (ValueError, TypeError, KeyError):
            raise SettingsError(f"{path}: is no file of answers; name another folder") from None
        if begun != head:
            changed = next(name for name in {**head, **begun} if begun.get(name) != head.get(name))
            raise SettingsError(
                f"{path}: was begun with {changed} {begun.get(changed)!r}, this is {head.get(changed)!r}; name another "
                "folder"
            )
        if lines[-1]:
            path.write_bytes(b"\n".join([*lines[:-1], b""]))

    def add(self, candidate: Candidate) -> None:
        """Write a candidate to the file."""
        self.found[Pair(candidate.source, candidate.reference)] = candidate
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(candidate), ensure_ascii=False) + "\n")


class Collector:
    """Asks for the translations of a text. For one event loop."""

    def __init__(self, translate: Translate, kept: AnswersFile, at_once: int) -> None:
        """translate: calls the service's Translate of a translator that has a second one, with its bounds open.

        at_once: sentences that the second translator is asked about at once
        """
        self._translate, self._kept, self._room = translate, kept, asyncio.Semaphore(at_once)
        self._left_out = Counter[str]()

    async def collect(self, pairs: Sequence[Pair], on_progress: Progress) -> Collected:
        """Return the sentences with their translations.

        on_progress: called with the number of lines done and of all

        Raises LingonError if the second translator answers none of the sentences of a request.
        """
        missing = [pair for pair in dict.fromkeys(pairs) if pair not in self._kept.found]
        done = len(pairs) - len(missing)
        on_progress(done, len(pairs))
        for begin in range(0, len(missing), TEXTS):
            some = missing[begin : begin + TEXTS]
            await self._collect(some)
            on_progress(done + begin + len(some), len(pairs))
        found = [self._kept.found[pair] for pair in dict.fromkeys(pairs) if pair in self._kept.found]
        return Collected(found, self._left_out)

    async def _collect(self, pairs: Sequence[Pair]) -> None:
        """Translate some lines, and ask about each that is one sentence."""
        request = _request([pair.source for pair in pairs])
        request.second.never = True
        own = (await self._translate(request)).results
        doubtful = list(self._doubtful(pairs, own))
        details = await asyncio.gather(*(self._ask(pair, ours, confidence) for pair, ours, confidence in doubtful))
        if doubtful and all(details):
            raise LingonError(f"the second translator answered none of {len(doubtful)} sentences: {details[0]}")

    def _doubtful(self, pairs: Sequence[Pair], results: Sequence[pb.TextResult]) -> Iterator[tuple[Pair, str, float]]:
        """Yield the lines that a server could send, with their translations and confidences."""
        for pair, result in zip(pairs, results, strict=True):
            if result.status.code:
                self._left_out["were not translated"] += 1
            elif len(result.sentences) != 1:
                self._left_out["are not one sentence"] += 1
            elif not result.sentences[0].HasField("confidence"):
                self._left_out["have no confidence"] += 1
            else:
                yield pair, result.hypotheses[0].text, result.sentences[0].confidence

    async def _ask(self, pair: Pair, ours: str, confidence: float) -> str:
        """Ask about a sentence, and keep what a server returns. Return why there is no answer, if there is none."""
        async with self._room:
            (result,) = (await self._translate(_request([pair.source]))).results
        sentence = result.sentences[0] if len(result.sentences) == 1 else pb.Sentence()
        outcome = sentence.second
        if not sentence.HasField("second"):
            self._left_out["cannot be sent"] += 1
            return ""
        if outcome.result in UNANSWERED:
            self._left_out["have no answer"] += 1
            return outcome.detail or pb.SecondResult.Name(outcome.result)
        taken = outcome.result == pb.SECOND_RESULT_TAKEN
        suspect = outcome.reason == pb.SECOND_REASON_SUSPECT
        theirs = result.hypotheses[0].text if taken else ours
        self._kept.add(Candidate(pair.source, pair.reference, confidence, suspect, ours, theirs))
        return ""


def _request(texts: Sequence[str]) -> pb.TranslateRequest:
    return pb.TranslateRequest(texts=texts, text=pb.TextOptions(return_sentences=True))


def chosen_pairs(pairs: Sequence[tuple[str, str]], most: int) -> list[Pair]:
    """Return at most so many pairs with text on both sides, evenly spaced."""
    found = [Pair(source.strip(), target.strip()) for source, target in pairs if source.strip() and target.strip()]
    return [found[number * len(found) // most] for number in range(most)] if len(found) > most else found
