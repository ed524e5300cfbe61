"""What a step of a decoder and an encoder launch, and how long that may take on a card.

    python -m kernels.card.cost

prints the launches of a step of base, and the predicted milliseconds of cells of `lingon bench gpu`. At few rows the
time of a step is that of its launches, see bench/results: every kernel takes 2 to 4 microseconds, and the bytes that it
reads a fraction of one.

A prediction is a latency for each kernel, with the gap to the next one, and the longer of two times: to read its bytes,
and to compute its products. The rate of memory is measured. Assumed are the rate of the second-level cache, the share
of the rate of products that tiles of 16 and 32 rows reach, and the latencies, LATENCIES. Neither the host is predicted,
nor the time in which it starts the kernels of the encoder, which are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

COLUMNS = {"m16": 16, "m32n32": 32, "m32": 64}  # of a block of a product, by tile
MANY_PROGRAMS = 128  # from which on the widest tiles are used
VOCAB_BLOCK = 128  # columns
WIDTHS = (256, 512, 1024)  # of rows whose norm begins a product


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoder:
    """The size of a decoder, by default that of base.

    norm: `layer` or `rms`; norm_first: whether norms come before attention and feed-forward, or after the residual.
    Either way the next product computes them. After the residual it also writes them, for the residual that follows.
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
    """A kernel of the archive.

    programs: the size of its grid; weights: bytes of the weights that it reads
    states: other bytes from memory; again: bytes that it reads from the second-level cache; operations: of its products
    """

    kernel: str
    programs: int
    weights: int = 0
    states: int = 0
    again: int = 0
    operations: int = 0


PAST, SOURCE, STEPS = 15, 25, 30
"""Of a cell of `lingon bench gpu`: positions of the past in the middle of an output, source tokens, target tokens."""


def step(decoder: Decoder, sentences: int, beams: int) -> list[Launch]:
    """Return the launches of a step, of greedy search if there is one beam."""
    rows, dim, head = sentences * beams, decoder.dim, f"d{decoder.dim // decoder.heads}"
    layer = [
        _product(decoder, rows, 3 * dim, dim, normed=True),
        Launch(f"step_attention_{head}", rows * decoder.heads, states=4 * dim * rows * (PAST + 1)),
        _product(decoder, rows, dim, dim),
        _product(decoder, rows, dim, dim, normed=True),
        Launch(
            f"cross_attention_{head}",
            sentences * decoder.heads * -(-beams // 16),
            states=4 * dim * sentences * SOURCE,
        ),
        _product(decoder, rows, dim, dim),
        _product(decoder, rows, decoder.feed_forward, dim, normed=True),
        _product(decoder, rows, dim, decoder.feed_forward),
    ]
    return [
        Launch("embed", rows * -(-dim // 1024)),
        _first(decoder, rows),
        *(layer * decoder.layers)[1:],
        Launch(f"norm_{decoder.norm}", rows),
        *_choice(decoder, rows, beams),
        *([Launch("greedy_step", 1)] if beams == 1 else _search(sentences, beams)),
    ]


def encoder(decoder: Decoder, sentences: int) -> list[Launch]:
    """Return the launches of an encoder as large as the decoder, and of the placing of its output."""
    rows, dim = sentences * SOURCE, decoder.dim
    head, tiles = f"d{dim // decoder.heads}", sentences * -(-SOURCE // 16)
    layer = [
        _product(decoder, rows, 3 * dim, dim, normed=True),
        Launch(f"self_attention_{head}", tiles * decoder.heads, again=6 * dim * rows),
        _product(decoder, rows, dim, dim),
        _product(decoder, rows, decoder.feed_forward, dim, normed=True),
        _product(decoder, rows, dim, decoder.feed_forward),
    ]
    return [
        Launch("embed", rows * -(-dim // 1024)),
        _first(decoder, rows),
        *(layer * decoder.layers)[1:],
        _product(decoder, rows, 2 * dim * decoder.layers, dim, normed=True),
        *[Launch("place_memory", rows * decoder.heads, states=8 * dim * rows)] * decoder.layers,
    ]


def _first(decoder: Decoder, rows: int) -> Launch:
    """Return the first product of the layers. In post-norm layers it reads the embeddings as they are."""
    return _product(decoder, rows, 3 * decoder.dim, decoder.dim, normed=decoder.norm_first)


def _product(decoder: Decoder, rows: int, columns: int, inner: int, *, normed: bool = False) -> Launch:
    tile = "m16" if rows <= 16 else "m32"
    if tile == "m32" and _tiles(rows) * -(-columns // COLUMNS[tile]) < MANY_PROGRAMS:
        tile = "m32n32"
    norm = f"{decoder.norm}_k{min(width for width in WIDTHS if width >= inner)}" if normed else "none"
    blocks = -(-columns // COLUMNS[tile])
    return _with_work(Launch(f"linear_{norm}_{tile}", blocks * _tiles(rows), 2 * columns * inner), rows, inner, blocks)


def _with_work(launch: Launch, rows: int, inner: int, blocks: int) -> Launch:
    """Return a product with its work: every row of tiles reads the weights, every block of columns the rows."""
    tiles, tile = _tiles(rows), 16 if rows <= 16 else 32
    again = launch.weights * (tiles - 1) + 2 * rows * inner * blocks
    return replace(launch, again=again, operations=launch.weights * tiles * tile)


def _choice(decoder: Decoder, rows: int, beams: int) -> list[Launch]:
    count = 1 if beams == 1 else 2 * beams
    top = min(each for each in (1, 8, 16) if each >= count)
    blocks = -(-decoder.vocab // VOCAB_BLOCK)
    name = f"choose_t{top}_{'m16' if rows <= 16 else 'm32'}"
    choose = Launch(name, blocks * _tiles(rows), 2 * decoder.vocab * decoder.dim)
    merge = Launch(f"merge_t{top}", rows, again=rows * blocks * 8 * (top + 1))
    return [_with_work(choose, rows, decoder.dim, blocks), merge]


def _search(sentences: int, beams: int) -> list[Launch]:
    width = min(each for each in (2, 4, 8, 16) if each >= beams)
    return [Launch(f"beam_step_b{width}", sentences), Launch("advance_step", 1)]


def _tiles(rows: int) -> int:
    return 1 if rows <= 16 else -(-rows // 32)


MEMORY = 4.4e6  # bytes a microsecond, measured on an H200
CACHE = 5.0e6  # bytes a microsecond, assumed
PRODUCTS = 0.4 * 756e6  # operations a microsecond; an H200 has reached 756e6 in large products, the share is assumed

LATENCIES = {
    "good": {"attention": 3.0, "product": 2.5, "other": 1.5},
    "as the standard graphs": {"attention": 4.5, "product": 3.9, "other": 2.0},
}
"""Microseconds of a kernel that reads nothing, with the gap to the next kernel. The second ones are those of ONNX
Runtime's kernels in a profile of a step of a few rows on an H200."""


def microseconds(launches: Sequence[Launch], latencies: Mapping[str, float]) -> float:
    """Return the predicted time of launches, one after the other."""
    return sum(latencies[_kind(each.kernel)] + _above_latency(each) for each in launches)


def _kind(kernel: str) -> str:
    if "attention" in kernel:
        return "attention"
    return "product" if kernel.startswith(("linear", "choose")) else "other"


def _above_latency(launch: Launch) -> float:
    read = (launch.weights + launch.states) / MEMORY + launch.again / CACHE
    return max(read, launch.operations / PRODUCTS)


def predictions(decoder: Decoder) -> Iterator[str]:
    """Yield a table: by search and sentences, the launches and the predicted milliseconds of a cell."""
    yield "| search | sentences | launches a step | steps, ms | encoder and placing, ms |"
    yield "|---|---|---|---|---|"
    for beams in (1, 4):
        for sentences in (1, 8, 64, 256):
            one, whole = step(decoder, sentences, beams), encoder(decoder, sentences)
            steps = [STEPS * microseconds(one, latencies) / 1000 for latencies in LATENCIES.values()]
            encoders = [microseconds(whole, latencies) / 1000 for latencies in LATENCIES.values()]
            search = "greedy" if beams == 1 else f"beam {beams}"
            times = " | ".join(f"{low:.1f} to {high:.1f}" for low, high in (steps, encoders))
            yield f"| {search} | {sentences} | {len(one)} | {times} |"


def main() -> None:
    """Print the launches of a step of base, and predictions."""
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
    print(f"prediction for base with norms after attention and feed-forward, {STEPS} steps, {SOURCE} source tokens;")
    print(f"the first time with latencies that are {' and the second with those '.join(LATENCIES)}:")
    print("\n".join(predictions(Decoder(norm_first=False))))


if __name__ == "__main__":
    main()
