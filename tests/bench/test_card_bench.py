"""fp16-native in `lingon bench gpu`, rehearsed on the CPU: the kernels run in Triton's interpreter."""

from __future__ import annotations

import pytest

from kernels.card.cost import Decoder, step
from lingon.bench.decode import Rounds
from lingon.bench.device_roofline import DevicePeaks
from lingon.bench.engines.parts import kernels_a_step
from lingon.bench.engines.worker import LINGON_GRAPHS, LINGON_NATIVE, TORCH_GRAPH
from lingon.bench.gpu import GpuBenchmark, GpuOptions, engine_settings, lines_of, table_of
from lingon.bench.results_file import ResumeFile, Row
from lingon.bench.synthetic import EMULATED_SHAPES, EMULATED_TOKENS, forced_workloads
from lingon.bundle.store import open_bundle
from lingon.errors import SettingsError
from lingon.serving.runtime.device import CPU

SHAPE = EMULATED_SHAPES["tiny"]
EMULATION = "tests.support.card_emulation"
ENGINES = LINGON_GRAPHS, LINGON_NATIVE, TORCH_GRAPH
OPTIONS = GpuOptions(device="cpu", operators=EMULATION, engines=ENGINES, batches=(1,), runs=1, quick=True)
PEAKS = DevicePeaks({"fp32": 1e11, "fp16": 1e11, "bf16": 1e11}, read=1e10, launch=0.0)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The rows of a run that was interrupted before the kernels were counted, and resumed."""
    folder = tmp_path_factory.mktemp("bench")
    fixed, _ = forced_workloads(folder / "cache", "tiny", SHAPE, CPU, sentences=1, tokens=EMULATED_TOKENS)
    assert "fp16-native" in open_bundle(fixed.bundle).manifest.precisions
    benchmark = GpuBenchmark(
        options=OPTIONS,
        rounds=Rounds(runs=1, min_run_ms=1e-3),
        peaks=PEAKS,
        cache=folder / "cache",
        resume_file=ResumeFile(folder / "part.jsonl", {}, resume=False),
        show=lambda line: None,
        write=lambda line: None,
    )
    return benchmark.measure([fixed])


@pytest.mark.native
@pytest.mark.triton
@pytest.mark.timeout(900)  # an interpreter runs the kernels
class TestRehearsal:
    def test_fp16_native_is_measured_beside_fp16_and_the_bare_loop(self, rows: list[Row]):
        assert [(row["beam_size"], row["engine"], row["precision"]) for row in rows] == [
            (beams, engine, precision)
            for beams in (1, 4)
            for engine, precision in zip(ENGINES, ("fp16", "fp16-native", "fp32"), strict=True)
        ]
        assert [row["reason"] for row in rows] == [None] * 6
        assert all(row["ratio_to_torch_graph"] is not None for row in rows)

    def test_its_tokens_are_those_of_the_standard_graphs_up_to_half_precision(self, rows: list[Row]):
        for row in rows:
            assert row["reference"] == LINGON_GRAPHS
            assert row["agreement"] == 1 or set(row["causes"]) <= {"tie", "ours is likelier"}

    def test_every_cell_is_split_into_encoder_steps_and_host(self, rows: list[Row]):
        for row in rows:
            parts = [row[f"{part}_ms"] for part in ("encoder", "steps", "host")]
            assert min(parts) > 0
            assert sum(parts) == pytest.approx(row["parts_ms"], abs=0.01)

    def test_the_kernels_of_a_step_are_those_that_the_cost_says(self, rows: list[Row]):
        decoder = Decoder(layers=1, dim=32, feed_forward=32, heads=1, vocab=200, norm_first=False)
        for row in rows:
            if row["engine"] == LINGON_NATIVE:
                expected = step(decoder, row["batch"], row["beam_size"])
                assert row["kernels_a_step"] == len(expected)
                assert set(row["kernels"]) == {each.kernel for each in expected}
            else:
                assert row["kernels_a_step"] is None
                assert row["kernels_reason"] == "kernels are counted on CUDA"

    def test_the_table_shows_them(self, rows: list[Row]):
        assert table_of("tiny", rows).row_count == 6
        assert {line.partition(":")[0] for line in lines_of(rows)} == {LINGON_NATIVE, TORCH_GRAPH}


def test_without_emulated_operators_fp16_native_is_left_out_on_the_cpu():
    assert LINGON_NATIVE not in {each.engine for each in engine_settings(GpuOptions(device="cpu"), cores=1)}


def test_emulated_operators_are_for_a_rehearsal():
    for other in ({}, {"device": "cpu"}, {"quick": True}):
        with pytest.raises(SettingsError, match="--operators is for a rehearsal with --device cpu and --quick"):
            GpuOptions(operators=EMULATION, **other)


def test_a_step_has_the_kernels_that_a_longer_run_has_more():
    shorter, longer = {"encode": (5.0, 50.0), "step": (8.0, 16.0)}, {"encode": (5.0, 51.0), "step": (16.0, 40.0)}
    assert kernels_a_step(shorter, longer, 8) == {"step": (1.0, 3.0)}
