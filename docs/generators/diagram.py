"""The architecture as a picture: layers of `lingon` and `lingon.serving`, their imports, the way of a request."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from docs.generators.imports import imports, layers, reduced
from docs.generators.markdown import fence

REQUEST = ("rpc", "auth", "models", "translation", "engine", "decoding", "runtime")
"""The packages of serving that a request passes, in this order."""

WIDTH, ROW, GAP = 880, 34, 22  # pixels: of the picture; height of a box; between two rows
STYLE = """<style>
.architecture { font: 13px sans-serif; max-width: 100%; height: auto; }
.architecture rect { fill: var(--color-background-secondary, #f8f9fb); stroke: currentColor; stroke-opacity: 0.5; }
.architecture rect.group { fill: none; stroke-dasharray: 4 3; }
.architecture line { stroke: currentColor; stroke-opacity: 0.45; }
.architecture text { fill: currentColor; text-anchor: middle; }
.architecture text.label { text-anchor: start; font-weight: bold; }
.architecture circle { fill: var(--color-brand-primary, #0a4bff); }
.architecture text.step { fill: var(--color-background-primary, #fff); font-size: 11px; font-weight: bold; }
</style>"""


@dataclass(frozen=True, slots=True)
class Box:
    """Packages at their place; step: the number on the way of a request, 0 if there is none."""

    names: tuple[str, ...]
    left: float
    top: float
    width: float
    step: int = 0

    @property
    def middle(self) -> float:
        """The horizontal centre."""
        return self.left + self.width / 2


def diagram() -> str:
    """The picture as HTML for a Markdown page."""
    return fence(svg(), "{raw} html")


def svg() -> str:
    """Two groups of boxes side by side: the packages of `lingon`, and those of `lingon.serving`."""
    outer = boxes("lingon", left=10, width=360)
    inner = boxes("lingon.serving", left=410, width=460)
    height = max(box.top for box in [*outer, *inner]) + ROW + 20
    parts = [f'<svg class="architecture" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="architecture">']
    parts += ['<title id="architecture">Packages of Lingon, their layers and imports</title>', STYLE, ARROW]
    for container, found, left, width in (("lingon", outer, 0, 380), ("lingon.serving", inner, 400, 480)):
        parts.append(f'<rect class="group" x="{left}" y="1" width="{width - 1}" height="{height - 2:g}" rx="6"/>')
        parts.append(f'<text class="label" x="{left + 12}" y="22">{container}</text>')
        parts += _lines(found, reduced(imports(container)))
        parts += [line for box in found for line in _drawn(box)]
    return "\n".join([*parts, "</svg>"])


ARROW = """<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8z" fill="currentColor" fill-opacity="0.6"/></marker></defs>"""


def boxes(container: str, left: float, width: float) -> list[Box]:
    """The packages of a container, one row a layer; many small modules of a layer share a box."""
    steps = {name: number for number, name in enumerate(REQUEST, 1)} if container == "lingon.serving" else {}
    found = []
    for row, layer in enumerate(layers(container)):
        groups = [(name,) for name in layer] if len(layer) < 4 else [tuple(layer)]
        each = (width - 8 * (len(groups) - 1)) / len(groups)
        for place, names in enumerate(groups):
            top = 34 + row * (ROW + GAP)
            found.append(Box(names, left + place * (each + 8), top, each, steps.get(names[0], 0)))
    return found


def _lines(found: list[Box], edges: set[tuple[str, str]]) -> list[str]:
    places = {name: box for box in found for name in box.names}
    drawn = []
    for importer, imported in sorted(edges):
        start, end = places[importer], places[imported]
        if start is end:
            continue
        drawn.append(
            f'<line x1="{start.middle:g}" y1="{start.top + ROW:g}" x2="{end.middle:g}" y2="{end.top - 1:g}" '
            f'marker-end="url(#arrow)"><title>{escape(importer)} imports {escape(imported)}</title></line>'
        )
    return drawn


def _drawn(box: Box) -> list[str]:
    lines = [f'<rect x="{box.left:g}" y="{box.top:g}" width="{box.width:g}" height="{ROW}" rx="4"/>']
    lines.append(f'<text x="{box.middle:g}" y="{box.top + ROW / 2 + 4:g}">{escape(", ".join(box.names))}</text>')
    if box.step:
        lines.append(f'<circle cx="{box.left + 14:g}" cy="{box.top + ROW / 2:g}" r="9"/>')
        lines.append(f'<text class="step" x="{box.left + 14:g}" y="{box.top + ROW / 2 + 4:g}">{box.step}</text>')
    return lines
