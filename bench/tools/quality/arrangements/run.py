"""The cases of a run in batches, what is wrong with their translations, and sums over these."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import Any

from lingon.bench.tools.quality.arrangements.cases import ARRANGEMENTS, CLOSING, OPENING, Case, are_found, case_of
from lingon.bench.tools.quality.arrangements.checks import Fault, fault_of
from lingon.bench.tools.quality.arrangements.formats import FORMATS, Format, translate
from lingon.bench.tools.quality.arrangements.strings import FORMS, random_string
from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb

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
