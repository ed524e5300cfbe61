"""`lingon calibrate --second`: choose the sentences that a server sends to its second translator, by a text with
references. It asks the second translator as a server does, and checks its answers as a server does.

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

from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import LingonError, SettingsError
from lingon.export.second_report import as_json, picture
from lingon.export.second_threshold import LEAST_SENTENCES, Candidate, Report, report
from lingon.files import make_folders, write_json, write_text
from lingon.serving.in_process import LIMITS
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.second.chat import ChatServer
from lingon.serving.second.choice import SecondChoice
from lingon.serving.second.second_translator import SecondBounds, SecondTranslator
from lingon.translation.v1 import translation_pb2 as pb

ANSWERS, FIGURES, PICTURE = "answers.jsonl", "second.json", "second.svg"
"""The files of a run, in its folder."""

TEXTS = 64  # of a request to the own model
UNANSWERED = {pb.SECOND_RESULT_TIMED_OUT, pb.SECOND_RESULT_FAILED, pb.SECOND_RESULT_OVER_BUDGET}
"""What says nothing about the second translator's quality: such a sentence is asked again in the next run."""

Log = Callable[[str], None]
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


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondSettings:
    """What is asked, and how.

    url: of the second translator's API; model: its name there; key_file: has the key of the API
    share: of the sentences that the threshold may send, 0 to 1
    lines: of the text that are read at most
    at_once: questions that are open at once; seconds: that one may take
    folder: of the files of the run
    """

    url: str
    model: str
    key_file: Path | None
    share: float
    lines: int
    at_once: int
    seconds: float
    folder: Path


class Calibration(NamedTuple):
    """The result of a run. left_out: why lines do not count, by reason."""

    report: Report
    left_out: Counter[str]


def calibrate_second(
    path: Path, text: Sequence[tuple[str, str]], settings: SecondSettings, log: Log, on_progress: Progress
) -> Calibration:
    """Translate a text, ask the second translator about each sentence, and write figures and picture to the folder.

    text: lines and their translations by people
    Raises SettingsError for a bundle without a confidence and for too little text, and LingonError if the second
    translator does not answer.
    """
    bundle = open_bundle(path)
    if bundle.manifest.text is None or bundle.manifest.text.confidence is None:
        raise SettingsError(f"{bundle.folder}: has no confidence; lingon calibrate --valid-data gives it one")
    pairs = chosen_pairs(text, settings.lines)
    if len(pairs) < LEAST_SENTENCES:
        raise SettingsError(f"--second-data needs {LEAST_SENTENCES} lines with text in both files, got {len(pairs)}")
    found = asyncio.run(_collected(bundle, pairs, settings, log, on_progress))
    made = report(found.candidates, settings.share, bundle.manifest.target_language)
    _write(made, found, f"{bundle.label} with {settings.model}", settings.folder)
    return Calibration(made, found.left_out)


async def _collected(
    bundle: Bundle, pairs: Sequence[Pair], settings: SecondSettings, log: Log, on_progress: Progress
) -> Collected:
    head = {"bundle": bundle.label, "second_model": settings.model}
    kept = AnswersFile(settings.folder / ANSWERS, head)
    missing = [pair for pair in pairs if pair not in kept.found]
    characters = sum(len(pair.source) for pair in missing)
    log(f"{len(missing):,} sentences with {characters:,} characters go to {settings.url}")
    second = SecondTranslator(
        ChatServer(settings.url, settings.model, settings.key_file, connections=settings.at_once),
        SecondChoice(1.0, len(pairs)),
        SecondBounds(seconds=settings.seconds, at_once=settings.at_once),
    )
    translator = load_translator(bundle, LoadOptions(limits=LIMITS, second=second))
    try:
        return await Collector(translator.translate, kept, settings.at_once).collect(pairs, on_progress)
    finally:
        await second.close()
        translator.engine.stop(0)


def _write(made: Report, found: Collected, title: str, folder: Path) -> None:
    """Write the figures, and the picture if there is a gain that it can show."""
    make_folders(folder)
    write_json(folder / FIGURES, {"title": title, "left_out": dict(found.left_out), **as_json(made)})
    if made.all.chrf > made.nothing.chrf:
        write_text(folder / PICTURE, picture(made, title))
