"""The floor of a cell on a device, and the peaks that it is computed from."""

from __future__ import annotations

import pytest

from lingon.bench.roofline.counts import DecodingCounts, MultiplyAdds
from lingon.bench.roofline.device_floor import floor_of
from lingon.bench.roofline.device_peaks import DevicePeaks, peaks_of


def test_the_floor_is_that_of_a_calculation_by_hand():
    """Two sentences of 5 source and 3 target tokens with beam 2, in fp16."""
    model = MultiplyAdds(encoder=1000, decoder=2000, dim=10, vocab=100, past_position=40, source_position=40)
    counts = DecodingCounts(
        source_tokens=10, encoder_runs=1, rows=12, steps=3, past_positions=24, source_positions=60, pieces=100
    )
    peaks = DevicePeaks(gemm={"fp16": 1e6}, read=1e6, launch=1e-4)
    found = floor_of(model, 2, counts, beam_size=2, peaks=peaks, precision="fp16")
    assert found.encoder == pytest.approx(1000 * 2 * 1000 * 10 / 1e6)
    moved = 3 * (2000 + 10 * 100) + 24 * 40 + 60 * 40 // 2 + 12 * 40
    assert found.read == pytest.approx(1000 * 2 * moved / 1e6)
    assert found.compute == pytest.approx(1000 * 2 * (12 * 3000 + 24 * 40 + 60 * 40) / 1e6)
    assert found.launch == pytest.approx(1000 * (8 * 2 + 1) * 3 * 1e-4)
    assert found.total == pytest.approx(found.encoder + found.compute)


def test_no_precision_has_a_lower_peak_than_fp32():
    found = peaks_of({"gemm_gops": {"fp32": 10, "fp16": 2, "bf16": 30}, "read_gbps": 5, "launch_us": 2})
    assert found == DevicePeaks({"fp32": 1e10, "fp16": 1e10, "bf16": 3e10}, 5e9, 2e-6)
