"""The floor of a cell on this machine (roofline): the operations of decoding, and the peak rates of the machine.

    python -m lingon.bench.roofline ROUNDS

prints the peaks as JSON. Matrix products: ONNX Runtime in fp32 (MatMul) and int8 (MatMulIntegerToFloat, uint8 rows by
int8 weights), the best of a few shapes that are bound by arithmetic, on one core and on all. Memory:
each core reads its share of an array much larger than any cache (a NumPy dot product of the array with itself).

The multiply-adds of a model are counted in its graphs. A phase (the encoder, or the decoder's steps) takes at least the
time of its operations at the peak rate of matrix products. It also takes at least the time to read its weights, once a
run or a step, at the peak rate of memory, if they do not fit into the last-level cache. Everything else (normalisation,
choosing tokens, reading keys and values, the encoder's self-attention) is counted as free: the floor is a bound, not a
forecast.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from lingon.bench.engines.base import Cell
from lingon.bench.engines.conversion import shortlist_of
from lingon.bench.worker_process import json_of
from lingon.bundle import names
from lingon.bundle.manifest import State
from lingon.bundle.store import Bundle
from lingon.errors import BundleError
from lingon.machine import usable_cores


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """Multiply-adds of a model.

    encoder: for one source token, with the cross-attention keys and values
    decoder: for one row of a step, without output layer and attention
    dim: for one row and one piece in the output layer
    vocab: pieces of the whole output layer
    past_position: for one row and one position of its past, in the self-attention of all layers
    source_position: for one row and one position of its source, in the cross-attention of all layers
    """

    encoder: int
    decoder: int
    dim: int
    vocab: int
    past_position: int
    source_position: int


@dataclass(frozen=True, slots=True)
class DecodingCounts:
    """The amount of decoding in one run.

    rows: rows of all steps together
    steps: the smallest number of steps that batches of the cell's size need
    past_positions, source_positions: positions that all rows attend to, in all steps
    pieces: pieces that a row chooses from
    """

    source_tokens: int
    encoder_runs: int
    rows: int
    steps: int
    past_positions: int
    source_positions: int
    pieces: int


def count_decoding(
    sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], cell: Cell, pieces: int
) -> DecodingCounts:
    """Count the translation of sources into outputs. The end token takes a step too, if it can be chosen."""
    ends = 0 if cell.is_forced else 1
    lengths = [len(output) + ends for output in outputs]
    pairs = list(zip(sources, lengths, strict=True))
    return DecodingCounts(
        source_tokens=sum(len(source) for source in sources),
        encoder_runs=math.ceil(len(sources) / cell.batch),
        rows=cell.beam_size * sum(lengths),
        steps=max(max(lengths, default=0), math.ceil(sum(lengths) / cell.batch)),
        past_positions=cell.beam_size * sum(length * (length + 1) // 2 for length in lengths),
        source_positions=cell.beam_size * sum(len(source) * length for source, length in pairs),
        pieces=pieces,
    )


PRODUCTS = {"Gemm", "MatMul", "FusedGemm", "FusedMatMul"}
RECURRENT = {"GRU", "LSTM"}
TRANSPARENT = {"Cast", "Identity", "Transpose", "DequantizeLinear"}
"""Operators that do not change the number of multiply-adds with a weight."""


def multiply_adds_of(bundle: Bundle) -> MultiplyAdds:
    """Count the multiply-adds of a bundle's model in its fp32 graphs. Other precisions compute the same products."""
    graphs, _ = bundle.graphs("fp32", names.ENCODER, names.DECODER)
    encoder, decoder = (_GraphProducts(onnx.load_from_string(graphs[name])) for name in (names.ENCODER, names.DECODER))
    output = decoder.matrix_before(names.LOGITS)
    if output is None:
        raise BundleError(f"{bundle.folder}/fp32/{names.DECODER}: no product with a weight leads to {names.LOGITS}")
    dim = math.prod(output) // max(output)
    return MultiplyAdds(
        encoder=encoder.total([state.name for state in bundle.manifest.states_of("memory")]),
        decoder=decoder.total([output.name for output in decoder.outputs]) - math.prod(output),
        dim=dim,
        vocab=bundle.manifest.target_vocab,
        past_position=_per_position(bundle.manifest.states_of("cache")),
        source_position=_per_position(bundle.manifest.states_of("memory")),
    )


def mean_shortlist_size(bundle: Bundle, sources: Iterable[Sequence[int]]) -> int:
    """Return the mean number of pieces on the shortlist of a source; the whole vocabulary if there is no shortlist."""
    shortlist = shortlist_of(bundle)
    if shortlist is None:
        return bundle.manifest.target_vocab
    return round(statistics.mean(len(shortlist.select(source)) for source in sources))


class _GraphProducts:
    """The products of a graph with constant matrices."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._dims = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}
        self._products = [node for node in graph.node if node.op_type in PRODUCTS]
        self._recurrent = [node for node in graph.node if node.op_type in RECURRENT]
        self.outputs = list(graph.output)

    def total(self, outputs: Sequence[str]) -> int:
        """Return the multiply-adds of one row in all recurrent layers, and in the products that lead to these outputs.

        Other products make the first state of a decoder, once a sentence, and count as free.
        """
        needed = self._before(outputs)
        products = (self._matrix(node) for node in self._products if needed.intersection(node.output))
        layers = (self._dims[name][1:] for node in self._recurrent for name in node.input[1:3])
        return sum(math.prod(dims) for dims in (*products, *layers) if dims)

    def _before(self, values: Sequence[str]) -> set[str]:
        """Return these values, and all values from which they are computed."""
        found, waiting = set[str](), list(values)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self._producers[name].input if name in self._producers else ()
        return found

    def matrix_before(self, value: str) -> tuple[int, ...] | None:
        """Return the shape of the matrix of the product that is nearest before a value (breadth-first)."""
        queue = [value]
        for name in queue:
            node = self._producers.get(name)
            if node is not None:
                if node.op_type in PRODUCTS and (found := self._matrix(node)):
                    return found
                queue += [each for each in node.input if each not in queue]
        return None

    def _matrix(self, node: onnx.NodeProto) -> tuple[int, ...] | None:
        """Return the shape of the constant matrix in a product; None if there is none."""
        found = (self._constant(name) for name in node.input[:2])
        return next((dims for dims in found if dims is not None and len(dims) == 2), None)

    def _constant(self, name: str) -> tuple[int, ...] | None:
        while name not in self._dims:
            node = self._producers.get(name)
            if node is None or node.op_type not in TRANSPARENT:
                return None
            name = node.input[0]
        return self._dims[name]


def _per_position(states: Iterable[State]) -> int:
    """Return the multiply-adds of one row with one position of all these states."""
    return sum(math.prod(size for size in state.shape if isinstance(size, int)) for state in states)


BYTES = {"fp32": 4, "int8": 1}
"""Bytes of one weight, by precision."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peak rates of the machine.

    gemm: operations a second (two for each multiply-add), by precision
    read: bytes a second from memory
    cache: bytes of the last-level cache; 0 if unknown
    """

    gemm: dict[str, float]
    read: float
    cache: int


def floor_ms(model: MultiplyAdds, peaks: Peaks, precision: str, counts: DecodingCounts) -> float:
    """Return the floor in milliseconds: the sum over both phases of the longer of computing and reading.

    Attention is always computed in fp32.
    """
    size = BYTES[precision]
    step_weights = model.decoder + model.dim * counts.pieces
    attention = counts.past_positions * model.past_position + counts.source_positions * model.source_position
    encoder = max(
        2 * model.encoder * counts.source_tokens / peaks.gemm[precision],
        _reading(model.encoder * size, counts.encoder_runs, peaks),
    )
    decoder = max(
        2 * step_weights * counts.rows / peaks.gemm[precision] + 2 * attention / peaks.gemm["fp32"],
        _reading(step_weights * size, counts.steps, peaks),
    )
    return 1000 * (encoder + decoder)


def _reading(size: int, times: int, peaks: Peaks) -> float:
    """Return the seconds to read `size` bytes of weights so many times; 0 if they stay in the last-level cache."""
    return times * size / peaks.read if size > peaks.cache else 0.0


SHAPES = ((512, 512, 2048), (1024, 1024, 1024), (1024, 2048, 2048))  # rows, inner, columns
ARRAY_BYTES = 512 * 1024 * 1024
MIN_ROUND_S = 0.1  # seconds of a round at least


def measure_peaks(rounds: int) -> dict[str, Any]:
    """Measure in a separate process: gemm_gops by precision and cores, read_gbps by cores, cache_mb.

    rounds: rounds of each measurement; the fastest counts
    """
    one_thread = {"OPENBLAS_NUM_THREADS": "1"}  # The threads of read_rate do the reading.
    return json_of(__name__, str(rounds), label="the machine's peaks", environment=one_thread)


def best_peaks(peaks: dict[str, Any]) -> Peaks:
    """Return the highest measured rates."""
    return Peaks(
        gemm={precision: 1e9 * max(rates.values()) for precision, rates in peaks["gemm_gops"].items()},
        read=1e9 * max(peaks["read_gbps"].values()),
        cache=peaks["cache_mb"] * 1024 * 1024,
    )


def gemm_rate(precision: str, shape: tuple[int, int, int], threads: int, rounds: int) -> float:
    """Return the operations a second of one matrix product, two for each multiply-add."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(_product(precision, shape), options, providers=["CPUExecutionProvider"])
    rows, inner, columns = shape
    kind = np.float32 if precision == "fp32" else np.uint8
    feed = {"rows": np.random.default_rng(0).integers(0, 100, (rows, inner)).astype(kind)}
    return 2 * rows * inner * columns / fastest_mean(lambda: session.run(None, feed), rounds)


def read_rate(threads: int, rounds: int) -> float:
    """Return the bytes a second that this number of threads reads from memory."""
    shares = np.array_split(np.ones(ARRAY_BYTES // 4, np.float32), threads)
    with ThreadPoolExecutor(threads) as pool:
        return ARRAY_BYTES / fastest_mean(lambda: list(pool.map(np.dot, shares, shares)), rounds)


def cache_mb() -> float:
    """Return the size of the last-level cache in MiB; 0 if the system does not report it."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size.removesuffix("K")) / 1024 for size in sizes), default=0.0)


def _product(precision: str, shape: tuple[int, int, int]) -> bytes:
    """Return an ONNX model of one product: rows by a constant matrix."""
    rows, inner, columns = shape
    values = np.random.default_rng(1).integers(-63, 64, (inner, columns))
    constants = {"matrix": values.astype(np.float32 if precision == "fp32" else np.int8)}
    if precision == "fp32":
        node = helper.make_node("MatMul", ["rows", "matrix"], ["product"])
    else:
        constants |= {"scale": np.array(0.01, np.float32), "scales": np.full(columns, 0.01, np.float32)}
        constants["zero"] = np.array(0, np.uint8)
        inputs = ["rows", "matrix", "scale", "scales", "zero"]
        node = helper.make_node("MatMulIntegerToFloat", inputs, ["product"], domain="com.microsoft")
    kind = TensorProto.FLOAT if precision == "fp32" else TensorProto.UINT8
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("rows", kind, [rows, inner])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, [rows, columns])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return content


def fastest_mean(work: Callable[[], object], rounds: int, synchronise: Callable[[], object] = lambda: None) -> float:
    """Return the mean seconds of one call in the fastest round, after one call that is not counted.

    synchronise: waits for work that a device does beside this process
    """

    def seconds(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            work()
        synchronise()
        return time.perf_counter() - start

    seconds(1)
    times = max(round(MIN_ROUND_S / seconds(1)), 1)
    return min(seconds(times) / times for _ in range(rounds))


def main() -> None:
    """Measure and print the peaks."""
    rounds, threads = int(sys.argv[1]), sorted({1, usable_cores()})

    def best_rate(precision: str, count: int) -> float:
        return max(gemm_rate(precision, shape, count, rounds) for shape in SHAPES) / 1e9

    rates = {
        precision: {str(count): best_rate(precision, count) for count in threads} for precision in ("fp32", "int8")
    }
    reads = {str(count): read_rate(count, rounds) / 1e9 for count in threads}
    print(json.dumps({"gemm_gops": rates, "read_gbps": reads, "cache_mb": cache_mb()}))


if __name__ == "__main__":
    main()
