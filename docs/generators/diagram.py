"""The architecture as a picture: layers of `lingon` and `lingon.serving`, their imports, the way of a request."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape

from docs.generators.imports import imports, layers, reduced
from docs.generators.markdown import fence

REQUEST = ("rpc", "auth", "models", "translation", "engine", "decoding", "runtime")
"""The packages of serving that a request passes, in this order."""

WIDTH, ROW, GAP = 876, 34, 22  # pixels: of the picture; height of a box of one line; between two rows
LINE, LETTER = 17, 7  # pixels: from one line of a box to the next; width of a letter, the average and a little more
STYLE = """<style>
.architecture { font: 13px sans-serif; max-width: 100%; height: auto; }
.architecture rect { fill: var(--color-background-secondary, #f8f9fb); stroke: currentColor; stroke-opacity: 0.5; }
.architecture rect.group { fill: none; stroke-dasharray: 4 3; }
.architecture path.import { fill: none; stroke: currentColor; stroke-opacity: 0.5; }
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

    @property
    def lines(self) -> list[str]:
        """The names, in lines that the box has room for."""
        return textwrap.wrap(", ".join(self.names), int(self.width / LETTER))

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.top + ROW + LINE * (len(self.lines) - 1)

    @property
    def centre(self) -> float:
        """The vertical centre."""
        return (self.top + self.bottom) / 2


def diagram() -> str:
    """The picture as HTML for a Markdown page."""
    return fence(svg(), "{raw} html")


def svg() -> str:
    """Two groups of boxes side by side: the packages of `lingon`, and those of `lingon.serving`."""
    outer = boxes("lingon", left=45, width=320)
    inner = boxes("lingon.serving", left=455, width=380)
    height = max(box.bottom for box in [*outer, *inner]) + 20
    named = 'role="img" aria-labelledby="architecture-title"'
    parts = [f'<svg class="architecture" viewBox="0 0 {WIDTH} {height:g}" {named}>']
    parts += ['<title id="architecture-title">Packages of Lingon, their layers and imports</title>', STYLE, ARROW]
    for container, found, left, width in (("lingon", outer, 0, 410), ("lingon.serving", inner, 415, 460)):
        parts.append(f'<rect class="group" x="{left}" y="1" width="{width - 1}" height="{height - 2:g}" rx="6"/>')
        parts.append(f'<text class="label" x="{left + 12}" y="22">{container}</text>')
        parts += [_arrow(start, end, left + width / 2) for start, end in edges(container, found)]
        parts += [line for box in found for line in _drawn(box)]
    return "\n".join([*parts, "</svg>"])


ARROW = """<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8z" fill="currentColor" fill-opacity="0.6"/></marker></defs>"""


def boxes(container: str, left: float, width: float) -> list[Box]:
    """The packages of a container, one row a layer; three and more modules of a layer share a box."""
    steps = {name: number for number, name in enumerate(REQUEST, 1)} if container == "lingon.serving" else {}
    found: list[Box] = []
    top = 34.0
    for layer in layers(container):
        groups = [(name,) for name in layer] if len(layer) < 3 else [tuple(layer)]
        each = (width - 8 * (len(groups) - 1)) / len(groups)
        for place, names in enumerate(groups):
            found.append(Box(names, left + place * (each + 8), top, each, steps.get(names[0], 0)))
        top = found[-1].bottom + GAP
    return found


def edges(container: str, found: list[Box]) -> list[tuple[Box, Box]]:
    """The imports between boxes, without those that a longer path implies."""
    places = {name: str(number) for number, box in enumerate(found) for name in box.names}
    all_edges = {(places[importer], places[imported]) for importer, imported in imports(container)}
    kept = reduced(frozenset((start, end) for start, end in all_edges if start != end))
    return [(found[int(start)], found[int(end)]) for start, end in sorted(kept)]


def _arrow(start: Box, end: Box, middle: float) -> str:
    """A line to the next row, or a curve around the rows between; middle: the horizontal centre of the group."""
    label = f"<title>{escape(', '.join(start.names))} imports {escape(', '.join(end.names))}</title>"
    rows = (end.top - start.top) / (ROW + GAP)
    if end.top - start.bottom <= GAP:
        path = f"M{start.middle:g} {start.bottom:g} L{end.middle:g} {end.top - 1:g}"
    else:
        path = _detour(start, end, middle, 10 + 6 * rows)
    return f'<path class="import" d="{path}" marker-end="url(#arrow)">{label}</path>'


def _detour(start: Box, end: Box, middle: float, bulge: float) -> str:
    """A curve from the outer side of a box to that of another, or to its top if it is on the other side."""
    right = (start.middle if start.middle != middle else end.middle) >= middle
    begin, finish = (box.left + box.width * right for box in (start, end))
    bend = begin + bulge if right else begin - bulge
    height, depth = start.centre, end.centre
    if (begin - finish) * (1 if right else -1) > 1:
        depth = end.top - GAP / 2
        return f"M{begin:g} {height:g} C{bend:g} {height:g} {bend:g} {depth:g} {begin:g} {depth:g} " + (
            f"L{end.middle:g} {end.top - 1:g}"
        )
    return f"M{begin:g} {height:g} C{bend:g} {height:g} {bend:g} {depth:g} {finish:g} {depth:g}"


def _drawn(box: Box) -> list[str]:
    height = box.bottom - box.top
    drawn = [f'<rect x="{box.left:g}" y="{box.top:g}" width="{box.width:g}" height="{height:g}" rx="4"/>']
    for place, line in enumerate(box.lines):
        drawn.append(f'<text x="{box.middle:g}" y="{box.top + ROW / 2 + 4 + LINE * place:g}">{escape(line)}</text>')
    if box.step:
        drawn.append(f'<circle cx="{box.left + 14:g}" cy="{box.centre:g}" r="9"/>')
        drawn.append(f'<text class="step" x="{box.left + 14:g}" y="{box.centre + 4:g}">{box.step}</text>')
    return drawn
