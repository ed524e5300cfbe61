"""Whether everybody says the same: outputs beside those of our engine in fp32, and why they differ where both are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from lingon.bench.decode.plan import OURS
from lingon.bench.decode.processes import Name
from lingon.bench.decode.results import Row
from lingon.bench.decode.rounds import Timed, Tokens
from lingon.bench.engines.agreement import compare
from lingon.bench.engines.base import Cell
from lingon.bundle import Bundle
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner


class Alike:
    """Compares outputs for one bundle; its scorer is loaded when it is first needed."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    def facts(
        self, name: Name, cell: Cell, sources: Sequence[Sequence[int]], timed: dict[Name, Timed]
    ) -> dict[str, Any]:
        """agreement: share of sentences that came out as ours in fp32 did; causes: of differences between fp32 and
        fp32, how many each; None where there is nothing to compare with, or where it explains nothing.
        """
        reference = next((found.outputs for other, found in timed.items() if _is_reference(other)), None)
        if reference is None:
            return {"agreement": None, "causes": None}
        outputs = timed[name].outputs
        share = sum(map(_same, outputs, reference)) / len(reference)
        explained = name[1].setting.precision == "fp32" and not cell.shortlist
        causes = self._causes(cell, sources, reference, outputs) if explained else None
        return {"agreement": round(share, 4), "causes": causes}

    def _causes(
        self, cell: Cell, sources: Sequence[Sequence[int]], reference: Tokens, outputs: Tokens
    ) -> dict[str, int]:
        if reference == outputs:
            return {}
        compared = compare(self._runner, sources, reference, outputs, cell)
        return dict(Counter(difference.cause for difference in compared.differences))

    @cached_property
    def _runner(self) -> OnnxRunner:
        return load_runner(self._bundle, "fp32", threads=1)


def lines(rows: Sequence[Row]) -> list[str]:
    """For every work, peer in fp32 and kind of search: the least agreement of its cells, and all causes."""
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        if row["causes"] is not None and not row["engine"].startswith(OURS):
            found.setdefault((row["work"], row["engine"], row["beam_size"]), []).append(row)
    return [_line(key, own) for key, own in found.items()]


def _line(key: tuple[str, str, int], rows: Sequence[Row]) -> str:
    work, engine, beam_size = key
    least = min(row["agreement"] for row in rows)
    causes: Counter[str] = sum((Counter(row["causes"]) for row in rows), Counter())
    told = ", ".join(f"{count} {cause}" for cause, count in causes.most_common()) or "none"
    search = "greedy" if beam_size == 1 else f"beam {beam_size}"
    return (
        f"{work}, {search}: at least {least:.2%} of sentences are the same with {engine} fp32 "
        f"(differences in {len(rows)} cells and settings: {told})"
    )


def _is_reference(name: Name) -> bool:
    """Whose outputs the others' are compared with: ours in fp32, whatever of its settings comes first."""
    return name[0] == OURS and name[1].setting.precision == "fp32"


def _same(one: Sequence[int], other: Sequence[int]) -> bool:
    return list(one) == list(other)
