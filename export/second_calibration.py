"""`lingon calibrate --second`: choose the sentences that a server sends to its second translator, by a text with
references. It asks the second translator as a server does, and checks its answers as a server does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.export.second_report import as_json, picture
from lingon.export.second_threshold import LEAST_SENTENCES, Report, report
from lingon.export.second_translations import AnswersFile, Collected, Collector, Pair, Progress, chosen_pairs
from lingon.files import make_folders, write_json, write_text
from lingon.serving.in_process import LIMITS
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.second.chat import ChatServer
from lingon.serving.second.choice import SecondChoice
from lingon.serving.second.second_translator import SecondBounds, SecondTranslator

ANSWERS, FIGURES, PICTURE = "answers.jsonl", "second.json", "second.svg"
"""The files of a run, in its folder."""

Log = Callable[[str], None]


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
