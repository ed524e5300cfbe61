"""The floor of a cell on this machine (roofline), and the peak rates that it follows from.

    python -m lingon.bench.machine_roofline ROUNDS

prints the peaks as JSON. Matrix products: those of ONNX Runtime in fp32 (MatMul) and int8 (MatMulIntegerToFloat, uint8
rows by int8 weights), on shapes that are bound by arithmetic; the best of a few shapes, on one core and on all. Memory:
each core reads its share of an array much larger than any cache (a NumPy dot product of the array with itself).

A phase (the encoder, or the decoder's steps) takes at least the time of its operations at the peak rate of matrix
products. It also takes at least the time to read its weights, once a run or a step, at the peak rate of memory, if
they do not fit into the last-level cache. Everything else (normalisation, choosing tokens, reading keys and values,
the encoder's self-attention) is counted as free: the floor is a bound, not a forecast.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from lingon.bench.roofline import DecodingCounts, MultiplyAdds
from lingon.bench.worker_process import json_of
from lingon.machine import usable_cores

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
    """The floor in milliseconds: the sum over both phases of the longer of computing and reading.

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
    """Seconds to read `size` bytes of weights so many times; 0 if they stay in the last-level cache."""
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
    """The highest measured rates."""
    return Peaks(
        gemm={precision: 1e9 * max(rates.values()) for precision, rates in peaks["gemm_gops"].items()},
        read=1e9 * max(peaks["read_gbps"].values()),
        cache=peaks["cache_mb"] * 1024 * 1024,
    )


def gemm_rate(precision: str, shape: tuple[int, int, int], threads: int, rounds: int) -> float:
    """Operations a second of one matrix product, two for each multiply-add."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(_product(precision, shape), options, providers=["CPUExecutionProvider"])
    rows, inner, columns = shape
    kind = np.float32 if precision == "fp32" else np.uint8
    feed = {"rows": np.random.default_rng(0).integers(0, 100, (rows, inner)).astype(kind)}
    return 2 * rows * inner * columns / _seconds(lambda: session.run(None, feed), rounds)


def read_rate(threads: int, rounds: int) -> float:
    """Bytes a second that this number of threads reads from memory."""
    shares = np.array_split(np.ones(ARRAY_BYTES // 4, np.float32), threads)
    with ThreadPoolExecutor(threads) as pool:
        return ARRAY_BYTES / _seconds(lambda: list(pool.map(np.dot, shares, shares)), rounds)


def cache_mb() -> float:
    """The size of the last-level cache in MiB; 0 if the system does not report it."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size.removesuffix("K")) / 1024 for size in sizes), default=0.0)


def _product(precision: str, shape: tuple[int, int, int]) -> bytes:
    """An ONNX model of one product: rows by a constant matrix."""
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


def _seconds(work: Callable[[], object], rounds: int) -> float:
    """The mean seconds of one call in the fastest round, after one call that is not counted."""
    work()
    means = []
    for _ in range(rounds):
        start, times = time.perf_counter(), 0
        while time.perf_counter() - start < MIN_ROUND_S:
            work()
            times += 1
        means.append((time.perf_counter() - start) / times)
    return min(means)


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
