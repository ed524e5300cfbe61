"""What a step of a decoder launches: `python -m kernels.card.cost` prints the launches of a step of base.

At few rows the time of a step is that of its launches, see bench/results: every kernel takes 2 to 4 microseconds, and
the bytes that it reads a fraction of one.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = {"m16": 16, "m32n32": 32, "m32": 64}  # of a block of a product, by tile
MANY_PROGRAMS = 128  # from which on the widest tiles are used
VOCAB_BLOCK = 128  # columns
WIDTHS = (256, 512, 1024)  # of rows whose norm begins a product


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoder:
    """The size of a decoder, by default that of base.

    norm: `layer` or `rms`; norm_first: whether norms come before attention and feed-forward, or after the residual
    """

    layers: int = 6
    dim: int = 512
    feed_forward: int = 2048
    heads: int = 8
    vocab: int = 32000
    norm: str = "layer"
    norm_first: bool = True


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel of the archive; programs: the size of its grid; weights: bytes of the weights that it reads."""

    kernel: str
    programs: int
    weights: int = 0


def step(decoder: Decoder, sentences: int, beams: int) -> list[Launch]:
    """Return the launches of a step, of greedy search if there is one beam."""
    rows, dim, head = sentences * beams, decoder.dim, f"d{decoder.dim // decoder.heads}"
    normed = decoder.norm_first
    norm = [Launch(f"norm_{decoder.norm}", rows)]
    layer = [
        _product(decoder, rows, 3 * dim, dim, normed=normed),
        Launch(f"step_attention_{head}", rows * decoder.heads),
        _product(decoder, rows, dim, dim),
        *([] if normed else norm),
        _product(decoder, rows, dim, dim, normed=normed),
        Launch(f"cross_attention_{head}", sentences * decoder.heads * -(-beams // 16)),
        _product(decoder, rows, dim, dim),
        *([] if normed else norm),
        _product(decoder, rows, decoder.feed_forward, dim, normed=normed),
        _product(decoder, rows, dim, decoder.feed_forward),
        *([] if normed else norm),
    ]
    return [
        Launch("embed", rows * -(-dim // 1024)),
        *layer * decoder.layers,
        *(norm if normed else []),
        *_choice(decoder, rows, beams),
        *([Launch("greedy_step", 1)] if beams == 1 else _search(sentences, beams)),
    ]


def _product(decoder: Decoder, rows: int, columns: int, inner: int, *, normed: bool = False) -> Launch:
    tile = "m16" if rows <= 16 else "m32"
    if tile == "m32" and _tiles(rows) * -(-columns // COLUMNS[tile]) < MANY_PROGRAMS:
        tile = "m32n32"
    norm = f"{decoder.norm}_k{min(width for width in WIDTHS if width >= inner)}" if normed else "none"
    programs = -(-columns // COLUMNS[tile]) * _tiles(rows)
    return Launch(f"linear_{norm}_{tile}", programs, 2 * columns * inner)


def _choice(decoder: Decoder, rows: int, beams: int) -> list[Launch]:
    count = 1 if beams == 1 else 2 * beams
    top = min(each for each in (1, 8, 16) if each >= count)
    programs = -(-decoder.vocab // VOCAB_BLOCK) * _tiles(rows)
    choose = Launch(f"choose_t{top}_{'m16' if rows <= 16 else 'm32'}", programs, 2 * decoder.vocab * decoder.dim)
    return [choose, Launch(f"merge_t{top}", rows)]


def _search(sentences: int, beams: int) -> list[Launch]:
    width = min(each for each in (2, 4, 8, 16) if each >= beams)
    return [Launch(f"beam_step_b{width}", sentences), Launch("advance_step", 1)]


def _tiles(rows: int) -> int:
    return 1 if rows <= 16 else -(-rows // 32)


def main() -> None:
    """Print the launches of a step of base."""
    for norm_first in (True, False):
        decoder = Decoder(norm_first=norm_first)
        print(f"base, norms {'before' if norm_first else 'after'} attention and feed-forward:")
        for sentences, beams in ((1, 1), (64, 1), (1, 4), (64, 4)):
            found = step(decoder, sentences, beams)
            weights = sum(each.weights for each in found) / 1e6
            print(f"  {sentences} sentences, {beams} beams: {len(found)} launches, {weights:.0f} MB of weights")
            for kernel in dict.fromkeys(each.kernel for each in found):
                same = [each for each in found if each.kernel == kernel]
                programs = sorted({each.programs for each in same})
                print(f"    {len(same):3} {kernel}, programs: {', '.join(map(str, programs))}")


if __name__ == "__main__":
    main()
