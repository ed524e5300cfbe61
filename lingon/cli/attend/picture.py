"""What is shown: matrices with the labels of their rows and columns. As JSON here, as text and image elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lingon.attention_kinds import AttentionKind
from lingon.cli.attend.words import axes, merge
from lingon.client.values.results import AttentionMatrix, ScoreResult

NAMES: dict[AttentionKind, str] = {
    "cross": "cross-attention",
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
}
AXES: dict[AttentionKind, tuple[str, str]] = {
    "cross": ("target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("predicted", "read"),
}
"""What rows and columns are."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A matrix: of a head, or the mean of heads if head is None; weights: (rows, columns)."""

    layer: int
    head: int | None
    weights: tuple[tuple[float, ...], ...]

    @property
    def caption(self) -> str:
        """The layer, and the head if it is one."""
        return f"layer {self.layer}" if self.head is None else f"layer {self.layer}, head {self.head}"


@dataclass(frozen=True, slots=True)
class Picture:
    """Matrices of one kind with common labels; mean_of: the heads of a mean, in words."""

    kind: AttentionKind
    model: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    panels: tuple[Panel, ...]
    mean_of: str = "mean of the heads"

    @property
    def title(self) -> str:
        """The kind and the model."""
        return f"{NAMES[self.kind]} of {self.model}"

    @property
    def subtitle(self) -> str:
        """The layer and the heads of the only matrix."""
        (panel,) = self.panels
        return panel.caption if panel.head is not None else f"{panel.caption}, {self.mean_of}"


def make_picture(result: ScoreResult, matrices: tuple[AttentionMatrix, ...], *, pieces: bool, mean_of: str) -> Picture:
    """The picture of matrices of one kind, by words or by pieces."""
    kind = matrices[0].kind
    rows, columns = axes(kind, result, pieces=pieces)
    return Picture(
        kind,
        f"{result.model}/{result.version}",
        tuple(row.label for row in rows),
        tuple(column.label for column in columns),
        tuple(Panel(each.layer, each.head, merge(each.weights, rows, columns)) for each in matrices),
        mean_of,
    )


def as_json(picture: Picture, source: str, target: str) -> str:
    """One JSON object; weights are rounded to six digits after the point."""
    panels = [
        {
            "layer": each.layer,
            "head": each.head,
            "weights": [[round(weight, 6) for weight in row] for row in each.weights],
        }
        for each in picture.panels
    ]
    values = {
        "source": source,
        "target": target,
        "model": picture.model,
        "kind": picture.kind,
        "rows": picture.rows,
        "columns": picture.columns,
        "matrices": panels,
    }
    return json.dumps(values, ensure_ascii=False)
