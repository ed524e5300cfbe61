"""Whether strings that are kept stay whole, and tags around them, in all arrangements and formats, in this process.

    python -m lingon.bench.tools.arrangements models/en-de models/en-fr --cases 200000

Each form of strings is put into each arrangement, in each format, greedy and with a beam. Prints how many of the
translations have a fault, by arrangement, by form and by format, and the first ones of each kind.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon.bench.results_file import ResumeFile, machine, save
from lingon.bench.tools.arrangement_cases import (
    ARRANGEMENTS,
    CLOSING,
    FORMATS,
    FORMS,
    OPENING,
    Case,
    Format,
    are_found,
    case_of,
    random_string,
    translate,
    without_tags,
)
from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb

Contexts = Mapping[str, Sequence[tuple[bool, ...]]]
"""By the elements that a string is in, the outermost first: for each time, whether each of them is right around it."""


class Fault(StrEnum):
    """The worst that is wrong with a translation."""

    LOST = "lost"  # a string is not as often in the translation as in the text
    BROKEN = "broken"  # a tag is in a string
    MOVED = "moved"  # a string is in other elements, or an element right around it is not
    TAGS = "tags"  # a tag is lost, doubled, or not nested
    MARKS = "marks"  # a quotation mark or bracket is on the other side of a tag


def fault_of(case: Case, translation: str, *, exact: bool = True) -> Fault | None:
    """Return what is wrong with a translation, with tags as the case has them; None if nothing is.

    exact: whether each tag is once in the translation; else a format may be in several parts, blanks have one too, and
        an element without text is left out
    """
    if not exact:
        translation = re.sub(f"([{OPENING}]+)( +)", r"\2\1", re.sub(f"( +)([{CLOSING}]+)", r"\2\1", translation))
    plain, source = without_tags(translation), without_tags(case.text)
    if any(plain.count(string) != source.count(string) for string in case.strings):
        return Fault.LOST
    if not _is_nested(translation):
        return Fault.TAGS
    if exact and Counter(filter(_is_tag, translation)) != Counter(filter(_is_tag, case.text)):
        return Fault.TAGS
    for string in case.strings:
        wanted, found = _contexts(case.text, string), _contexts(translation, string)
        if sum(map(len, wanted.values())) != sum(map(len, found.values())):
            return Fault.BROKEN
        if any(_is_moved(each, found.get(elements, ())) for elements, each in wanted.items()):
            return Fault.MOVED
    return Fault.MARKS if _unbalanced(translation) > _unbalanced(case.text) else None


def _is_tag(character: str) -> bool:
    return character in OPENING or character in CLOSING


def _is_nested(text: str) -> bool:
    opened = list[str]()
    for character in filter(_is_tag, text):
        if character in OPENING:
            opened.append(character)
        elif not opened or OPENING.index(opened.pop()) != CLOSING.index(character):
            return False
    return not opened


def _is_moved(wanted: Sequence[tuple[bool, ...]], found: Sequence[tuple[bool, ...]]) -> bool:
    """Whether a string is not as often in some elements, or fewer of these are right around it."""
    right = [list(map(sum, zip(*each, strict=True))) for each in (wanted, found)]
    return len(wanted) != len(found) or any(after < before for before, after in zip(*right, strict=True))


def _contexts(text: str, string: str) -> Contexts:
    """Return in which elements a string without tags in it is, as often as it is found."""
    contexts: dict[str, list[tuple[bool, ...]]] = {}
    at = text.find(string)
    while at >= 0:
        opened, end = list[int](), at + len(string)
        for place in range(at):
            if text[place] in OPENING:
                opened.append(place)
            elif text[place] in CLOSING:
                opened.pop()
        inside = (
            (text[place + 1 : at].strip(OPENING), text[end : _end(text, place)].strip(CLOSING)) for place in opened
        )
        contexts.setdefault("".join(text[place] for place in opened), []).append(
            tuple(not before and not after for before, after in inside)
        )
        at = text.find(string, at + 1)
    return contexts


def _end(text: str, start: int) -> int:
    """Return where the end tag of an element is; start: of its start tag."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in OPENING) - (text[place] in CLOSING)
        if not depth:
            return place
    return len(text)


def _unbalanced(text: str) -> int:
    """Return how many elements have one mark of a pair of brackets or quotation marks."""
    found = 0
    for start in (place for place, character in enumerate(text) if character in OPENING):
        inside = text[start : _end(text, start)]
        quotes = sum(map(inside.count, '"„“”«»'))
        found += inside.count("(") != inside.count(")") or quotes % 2 == 1
    return found


BEAMS = (1, 4)
_SHOWN = dict(zip(map(ord, OPENING + CLOSING), ("<b>", "<i>", "</b>", "</i>"), strict=True))


@dataclass(frozen=True, slots=True)
class Batch:
    """One case of each form in each arrangement, in one format and with one size of the beam.

    number: of the round, of which each has other strings and words
    """

    format: Format
    beam_size: int
    number: int
    seed: int

    @property
    def key(self) -> str:
        """The name of the batch in a run."""
        return f"{self.format.name}, beam {self.beam_size}, {self.number}"

    def cases(self, every: int = 1) -> Iterator[tuple[str, str, Case]]:
        """Yield the arrangement, the form and the case of each that the format can hold, or of one of `every`."""
        rng = random.Random(f"{self.seed} {self.key}")
        chosen = [*product(ARRANGEMENTS, FORMS)]
        for arrangement, form in chosen[rng.randrange(every) :: every]:
            strings = random_string(form, rng), random_string(rng.choice(list(FORMS)), rng)
            case = case_of(arrangement, strings, rng)
            if self.format.holds(case) and are_found(case):
                yield arrangement, form, case

    def measured(self, translator: LocalTranslator, model: str, every: int = 1) -> dict[str, Any]:
        """Return how many cases of each kind there are, and what is wrong with which; every: see `cases`."""
        named = list(self.cases(every))
        options = pb.DecodingOptions(beam_size=self.beam_size, long_text=pb.LONG_TEXT_POLICY_SPLIT)
        found = translate(translator, self.format, [case for _, _, case in named], options)
        faults = [
            {
                "model": model,
                "beam": self.beam_size,
                "format": self.format.name,
                "arrangement": arrangement,
                "form": form,
                "fault": fault,
                "text": case.text.translate(_SHOWN),
                "translation": translation.translate(_SHOWN),
            }
            for (arrangement, form, case), translation in zip(named, found, strict=True)
            if (fault := fault_of(case, translation, exact=self.format.exact)) is not None
        ]
        counted = Counter(arrangement for arrangement, _, _ in named), Counter(form for _, form, _ in named)
        return {
            "model": model,
            "beam": self.beam_size,
            "format": self.format.name,
            "cases": len(named),
            "arrangement": counted[0],
            "form": counted[1],
            "faults": faults,
        }


def batches(seed: int) -> Iterator[Batch]:
    """Yield the batches of one round after the other, without an end."""
    for number in count():
        for format, beam_size in product(FORMATS, BEAMS):
            yield Batch(format, beam_size, number, seed)


def summed(records: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the cases and the faults of all records, and by model, beam, format, arrangement and form."""
    faults = [fault for record in records for fault in record["faults"]]
    total = {"cases": sum(record["cases"] for record in records), **_kinds(faults)}
    tables = {"total": [total]}
    for name in ("model", "beam", "format", "arrangement", "form"):
        cases = Counter[Any]()
        for record in records:
            cases.update(record[name] if name in ("arrangement", "form") else {record[name]: record["cases"]})
        tables[name] = [
            {name: value, "cases": number, **_kinds([fault for fault in faults if fault[name] == value])}
            for value, number in cases.items()
        ]
    return tables


def _kinds(faults: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many faults of each kind there are."""
    kinds = Counter(fault["fault"] for fault in faults)
    return {kind.value: kinds[kind.value] for kind in Fault}


RESUMED = Path("build/bench/arrangements.jsonl")
WIDTH = 140  # characters of the tables
SHOWN = 60  # faults that are printed


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a table with a column for each key."""
    table = Table(*dict.fromkeys(key for row in rows for key in row))
    for row in rows:
        table.add_row(*map(str, row.values()))
    return table


def main(
    models: Annotated[list[Path], typer.Argument(help="Bundles, one for each pair.")],
    cases: Annotated[int, typer.Option(min=1, help="Cases, at least.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Of the random strings and words.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Of so many cases, one is tried, as a trial run.")] = 1,
    resume: Annotated[bool, typer.Option(help=f"Go on with a run that was ended; it is in {RESUMED}.")] = False,
    results: Annotated[Path | None, typer.Option(help="Folder for the results. Default: not written.")] = None,
) -> None:
    """Print, and save if asked for, how many cases have a fault."""
    head = {"models": list(map(str, models)), "cases": cases, "seed": seed, "every": every, "machine": machine()}
    file = ResumeFile(RESUMED, head, resume=resume)
    records = list[dict[str, Any]]()
    for model in models:
        with LocalTranslator(model) as translator:
            records += _measured(translator, model.name, cases // len(models), batches(seed), every, file)
    rows = summed(records)
    faults = [fault for record in records for fault in record["faults"]]
    console = Console(width=WIDTH)
    for name, found in rows.items():
        console.print(name)
        console.print(table_of(found))
    for fault in faults[:SHOWN]:
        typer.echo(str(fault))
    if results is not None:
        (total,) = rows.pop("total")
        saved = [{"by": name, **row} for name, found in rows.items() for row in found]
        path = save("arrangements", [total, *saved], results, seed=seed, faults=faults)
        typer.echo(f"written: {path}")
    file.delete()


def _measured(
    translator: LocalTranslator, model: str, cases: int, batches: Iterator[Batch], every: int, file: ResumeFile
) -> list[dict[str, Any]]:
    """Return the records of a model, those of an earlier run from its file; they have so many cases, or some more."""
    records, done, began, known = list[dict[str, Any]](), 0, time.monotonic(), 0
    for batch in batches:
        key = f"{model} {batch.key}"
        if (record := file.get(key)) is None:
            record = batch.measured(translator, model, every)
            file.add(key, record)
        else:
            known += record["cases"]
        records.append(record)
        done += record["cases"]
        rate = (done - known) / (time.monotonic() - began)
        faults = sum(len(each["faults"]) for each in records)
        typer.echo(f"{model}: {done:,} of {cases:,} cases, {faults} with a fault, {rate:.0f} a second", err=True)
        if done >= cases:
            break
    return records


if __name__ == "__main__":
    typer.run(main)
