"""The folder of a distillation: its plan, its shards, and the corpus that they become.

A run may be killed at any time: a shard is written whole, the plan says what the shards belong to, and a second run
translates the shards that are missing.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from lingon.cli.output import writing
from lingon.client.results import TextResult
from lingon.errors import CorpusError, LingonError, SettingsError
from lingon.files import make_folders, read_lines, read_parallel, remove_partial_files, write_bytes, write_json
from lingon.scoring import sentence_chrf


@dataclass(frozen=True, slots=True)
class TeacherText:
    """A text to translate.

    references: its human translations, each once, in the order of the corpora, or none if only sources were given
    """

    source: str
    references: tuple[str, ...] = ()


def unique_texts(sources: Sequence[Path], targets: Sequence[Path]) -> list[TeacherText]:
    """Return the lines of all sources that are not blank, each once, in the order of their first position.

    targets: line-parallel with the sources, or empty

    Raises CorpusError if a file cannot be read, or if there is no text.
    """
    found: dict[str, dict[str, None]] = {}
    for source, target in _pairs(sources, targets):
        if source.strip():
            references = found.setdefault(source, {})
            if target is not None and target.strip():
                references[target] = None
    if not found:
        raise CorpusError(f"{', '.join(map(str, sources))}: no text")
    return [TeacherText(source, tuple(references)) for source, references in found.items()]


def _pairs(sources: Sequence[Path], targets: Sequence[Path]) -> Iterator[tuple[str, str | None]]:
    if targets:
        for source, target in zip(sources, targets, strict=True):
            yield from read_parallel(source, target)
    else:
        for source in sources:
            yield from ((line, None) for line in read_lines(source))


def digest(texts: Sequence[TeacherText]) -> str:
    """Return the SHA-256 of texts and references, in hexadecimal."""
    found = hashlib.sha256()
    for text in texts:
        found.update(json.dumps([text.source, *text.references]).encode() + b"\n")
    return found.hexdigest()


HARMLESS = {"split", "low_confidence", "retried"}
"""Warnings that leave a translation fit for training. A low confidence says only that the text is hard."""


class PairChoice(StrEnum):
    """Which of the teacher's translations of a text become training pairs.

    BEST: the one with the best score: sequence-level distillation (Kim and Rush, 2016, section 3.2)
    ALL: every one
    CLOSEST: the one with the highest chrF against a human translation: their sequence-level interpolation (section 3.3)
    """

    BEST = "best"
    ALL = "all"
    CLOSEST = "closest"


def fault_of(result: TextResult) -> str | None:
    """Return what makes a result unfit for training, as the code of a warning or an error, or None if nothing does."""
    if result.error is not None:
        return (result.error.reason or "error").lower()
    return next((warning.code for warning in result.warnings if warning.code not in HARMLESS), None)


def chosen(choice: PairChoice, text: TeacherText, translations: Sequence[str]) -> list[str]:
    """Return the translations of a text that become training pairs, each once and without blank ones."""
    different = list(dict.fromkeys(each for each in translations if each.strip()))
    if choice is PairChoice.ALL or not different:
        return different
    if choice is PairChoice.CLOSEST and text.references and len(different) > 1:
        return [max(different, key=_nearness(text))]
    return different[:1]


def _nearness(text: TeacherText) -> Callable[[str], float]:
    return lambda translation: max(sentence_chrf(translation, reference) for reference in text.references)


PLAN, SHARDS, REPORT = "plan.json", "shards", "report.json"
SOURCE, TARGET = "distilled.source.gz", "distilled.target.gz"
SHARD_TEXTS = 2000  # texts of a shard: a run that is killed loses the seconds that one takes


@dataclass(frozen=True, slots=True)
class DistillPlan:
    """What a folder is made from. A second run with another plan is refused.

    digest: SHA-256 of the texts and their references
    model: name and version of the teacher
    options: of the translation
    """

    texts: int
    digest: str
    model: str
    options: dict[str, Any]
    shard_texts: int = SHARD_TEXTS


@dataclass(frozen=True, slots=True)
class TeacherTranslation:
    """A text that was translated.

    translations: best first, empty if it has a fault
    fault: code of the warning or the error that makes it unfit for training
    """

    translations: tuple[str, ...] = ()
    fault: str | None = None


@dataclass(slots=True)
class DistillReport:
    """What became of the texts.

    backward: whether the translations are the sources of the pairs
    texts: that were translated; pairs: that were written; left_out: texts by the reason why they gave no pair
    """

    model: str
    options: dict[str, Any]
    choice: str
    backward: bool = False
    texts: int = 0
    pairs: int = 0
    left_out: dict[str, int] = field(default_factory=dict)


class Shards:
    """The shards in the folder of a distillation."""

    def __init__(self, folder: Path, plan: DistillPlan, texts: Sequence[TeacherText]) -> None:
        """Begin a new folder, or go on with one. Raises SettingsError if the folder has another plan."""
        self._folder, self._plan, self._texts = folder, plan, texts
        make_folders(folder / SHARDS)
        remove_partial_files(folder)
        remove_partial_files(folder / SHARDS)
        if (folder / PLAN).exists():
            self._check_plan()
        else:
            write_json(folder / PLAN, asdict(plan))

    def __len__(self) -> int:
        return -(-self._plan.texts // self._plan.shard_texts)

    def missing(self) -> list[int]:
        """Return the numbers of the shards that are not translated yet."""
        return [number for number in range(len(self)) if not self._path(number).exists()]

    def texts_of(self, number: int) -> Sequence[TeacherText]:
        """Return the texts of a shard."""
        first = number * self._plan.shard_texts
        return self._texts[first : first + self._plan.shard_texts]

    def write(self, number: int, results: Iterable[TeacherTranslation]) -> None:
        """Write the translations of the texts of a shard, in their order."""
        lines = [json.dumps([each.fault, *each.translations], ensure_ascii=False) for each in results]
        if len(lines) != len(self.texts_of(number)):
            raise ValueError(f"shard {number}: {len(lines)} results of {len(self.texts_of(number))} texts")
        write_bytes(self._path(number), gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))

    def publish(self, choice: PairChoice, *, backward: bool = False) -> DistillReport:
        """Write the corpus from all shards: line-parallel files of sources and targets, and a report.

        backward: the texts are the targets of the pairs: back-translation (Sennrich et al., 2016)
        """
        report, left_out = DistillReport(self._plan.model, self._plan.options, choice.value, backward), Counter[str]()
        with writing(self._folder / SOURCE) as sources, writing(self._folder / TARGET) as targets:
            for text, translated in self._translated():
                report.texts += 1
                found = chosen(choice, text, [" ".join(each.split()) for each in translated.translations])
                if not found:
                    left_out[translated.fault or "empty"] += 1
                for translation in found:
                    pair = (translation, text.source) if backward else (text.source, translation)
                    sources.write(f"{pair[0]}\n".encode())
                    targets.write(f"{pair[1]}\n".encode())
                    report.pairs += 1
        report.left_out = dict(left_out)
        write_json(self._folder / REPORT, asdict(report))
        return report

    def _translated(self) -> Iterator[tuple[TeacherText, TeacherTranslation]]:
        for number in range(len(self)):
            path = self._path(number)
            try:
                # Not splitlines: it also ends a line at U+2028 and others, which JSON leaves as they are.
                lines = gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")
                results = [_parsed(line) for line in lines]
                yield from zip(self.texts_of(number), results, strict=True)
            except (OSError, EOFError, ValueError, RecursionError) as error:
                raise LingonError(f"{path}: damaged ({error}); delete it and start again") from None

    def _check_plan(self) -> None:
        path = self._folder / PLAN
        try:
            begun = json.loads(path.read_text(encoding="utf-8"))
            ours = asdict(self._plan)
            differing = next((name for name in ours if begun[name] != ours[name]), None)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise SettingsError(f"{path}: not a plan ({error})") from None
        if differing is not None:
            raise SettingsError(
                f"{self._folder}: was begun with another value of {differing}: {begun[differing]!r}, not "
                f"{ours[differing]!r}; choose another --output"
            )

    def _path(self, number: int) -> Path:
        return self._folder / SHARDS / f"{number:05d}.jsonl.gz"


def _parsed(line: str) -> TeacherTranslation:
    """Return the translations of a text, as `Shards.write` writes them. Raises ValueError."""
    found = json.loads(line)
    if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found[1:]):
        raise ValueError("a line must be a fault and translations")
    if not isinstance(found[0], str | None):
        raise ValueError("a fault must be a text")
    return TeacherTranslation(tuple(found[1:]), found[0])
