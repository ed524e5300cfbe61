"""The floor of a cell on a device (roofline), and the peak rates of the device that it follows from, by PyTorch.

    python -m lingon.bench.device_roofline DEVICE ROUNDS

prints the peaks as JSON. Matrix products of square matrices that are bound by arithmetic, the best of a few sizes, by
precision. Memory: the sum of an array much larger than any cache, or its copy, whichever moves more bytes a second.
Launch: the time between two dependent kernels of one element inside a CUDA graph. A CPU has none.

A decoder step takes at least the longest of three times, and the floor of all steps is the longest of their sums:

- to read the weights once, the keys and values of every hypothesis's past, and of every source once for all its beams,
  and to write the new keys and values, at the peak rate of memory;
- to compute its products at the peak rate of the precision;
- to run the kernels that depend on each other, one after the other, KERNELS_OF_LAYER of them in a layer.

The encoder takes at least the time of its products, and the time to read its weights. Everything else counts as free.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lingon.bench.roofline import DecodingCounts, MultiplyAdds, fastest_mean
from lingon.bench.worker_process import json_of

BYTES = {"fp32": 4, "fp16": 2}
"""Bytes of a weight, a key or a value, by precision."""

KERNELS_OF_LAYER = 8
"""Of a decoder layer: two attentions, with a product before and after each, and the two products of the feed-forward
layer."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Milliseconds of a cell at least: of the encoder, and of all decoder steps, by each bound."""

    encoder: float
    read: float
    compute: float
    launch: float

    @property
    def total(self) -> float:
        """Milliseconds of the cell at least."""
        return self.encoder + max(self.read, self.compute, self.launch)


def floor_of(
    model: MultiplyAdds, layers: int, counts: DecodingCounts, beam_size: int, peaks: DevicePeaks, precision: str
) -> Floor:
    """Return the floor of a cell. layers: of the decoder."""
    precision = precision.removesuffix("-native")
    size, gemm = BYTES[precision], peaks.gemm[precision]
    weights = model.decoder + model.dim * model.vocab
    # A key or a value takes part in one multiply-add for each row, so that these count the elements, too.
    past, source = counts.past_positions * model.past_position, counts.source_positions * model.source_position
    moved = weights * counts.steps + past + source // beam_size + counts.rows * model.past_position
    encoder = max(
        2 * model.encoder * counts.source_tokens / gemm, model.encoder * size * counts.encoder_runs / peaks.read
    )
    return Floor(
        encoder=1000 * encoder,
        read=1000 * moved * size / peaks.read,
        compute=1000 * 2 * (weights * counts.rows + past + source) / gemm,
        launch=1000 * (KERNELS_OF_LAYER * layers + 1) * counts.steps * peaks.launch,
    )


PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SIZES = {"cuda": (4096, 8192), "cpu": (256, 512)}
"""Rows, inner dimension and columns of a product, by type of device."""
ARRAY_BYTES = {"cuda": 2 << 30, "cpu": 256 << 20}
KERNELS = 100  # kernels of one element that depend on each other


@dataclass(frozen=True, slots=True)
class DevicePeaks:
    """The peak rates of a device.

    gemm: operations a second (two for each multiply-add), by precision
    read: bytes a second from the memory of the device
    launch: seconds from one kernel to the next that depends on it
    """

    gemm: dict[str, float]
    read: float
    launch: float


def measure_device_peaks(device: str, rounds: int) -> dict[str, Any]:
    """Measure in a separate process: name, gemm_gops by precision, read_gbps, launch_us.

    device: cpu or cuda
    rounds: rounds of each measurement; the fastest counts
    """
    return json_of(__name__, device, str(rounds), label=f"the peaks of device {device}")


def peaks_of(measured: dict[str, Any]) -> DevicePeaks:
    """Return the peaks that `measure_device_peaks` has found.

    No precision is slower than fp32, in which its products can be computed too. A CPU without instructions for fp16
    does that.
    """
    rates = measured["gemm_gops"]
    gemm = {precision: 1e9 * max(rate, rates["fp32"]) for precision, rate in rates.items()}
    return DevicePeaks(gemm, 1e9 * measured["read_gbps"], 1e-6 * measured["launch_us"])


@torch.inference_mode()
def gemm_rate(device: str, precision: str, rounds: int) -> float:
    """Return the operations a second of matrix products, two for each multiply-add."""
    rates, synchronise = [], synchroniser(device)
    for size in SIZES[device]:
        one, other = (torch.randn(size, size, device=device).to(PRECISIONS[precision]) for _ in range(2))
        work = functools.partial(torch.mm, one, other, out=torch.empty_like(one))
        rates.append(2 * size**3 / fastest_mean(work, rounds, synchronise))
    return max(rates)


@torch.inference_mode()
def read_rate(device: str, rounds: int) -> float:
    """Return the bytes a second between the memory and the processor of the device."""
    values = torch.ones(ARRAY_BYTES[device] // 4, device=device)
    size, copied, synchronise = values.nbytes, torch.empty_like(values), synchroniser(device)
    reading = fastest_mean(lambda: values.sum(), rounds, synchronise)
    copying = fastest_mean(lambda: copied.copy_(values), rounds, synchronise)
    return max(size / reading, 2 * size / copying)


@torch.inference_mode()
def launch_seconds(device: str, rounds: int) -> float:
    """Return the seconds from one kernel to the next that depends on it; 0 on the CPU."""
    if device == "cpu":
        return 0.0
    value = torch.zeros(1, device=device)

    def chain() -> None:
        for _ in range(KERNELS):
            value.add_(1)

    chain()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    return fastest_mean(graph.replay, rounds, torch.cuda.synchronize) / KERNELS


def synchroniser(device: str) -> Callable[[], object]:
    """Return a function that waits for the work of a device."""
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def main() -> None:
    """Measure and print the peaks."""
    device, rounds = sys.argv[1], int(sys.argv[2])
    found = {
        "name": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "gemm_gops": {precision: round(gemm_rate(device, precision, rounds) / 1e9, 1) for precision in PRECISIONS},
        "read_gbps": round(read_rate(device, rounds) / 1e9, 2),
        "launch_us": round(1e6 * launch_seconds(device, rounds), 3),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
