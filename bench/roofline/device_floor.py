"""The floor of a cell on a device: a lower bound of its time, from the peaks of the device (roofline).

A decoder step takes at least the longest of three times, and the floor of all steps is the longest of their sums:

- to read the weights once, the keys and values of every hypothesis's past, and of every source once for all its beams,
  and to write the new keys and values, at the peak rate of memory;
- to compute its products at the peak rate of the precision;
- to run the kernels that depend on each other, one after the other, KERNELS_OF_LAYER of them in a layer.

The encoder takes at least the time of its products, and that to read its weights. Everything else is counted as free.
"""

from __future__ import annotations

from dataclasses import dataclass

from lingon.bench.roofline.counts import DecodingCounts, MultiplyAdds
from lingon.bench.roofline.device_peaks import DevicePeaks

BYTES = {"fp32": 4, "fp16": 2}
"""Bytes of a weight, a key or a value, by precision."""

KERNELS_OF_LAYER = 8
"""Of a decoder layer: two attentions, with a product before and after each, and the two products of the feed-forward
layer."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Milliseconds of a cell at least: of the encoder, and of all decoder steps, by what bounds them."""

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
