"""`lingon bench serve`: its plan, a run with a real server, tables and chart, processes, the cost of a request."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from prometheus_client import generate_latest

from lingon.bench.serve.load import Objective
from lingon.bench.serve.run import (
    LINGON,
    STATE_BYTES,
    CpuPlan,
    Plan,
    System,
    clients_table,
    draw,
    gauge_sum,
    lingon_command,
    loaded_mb,
    measure,
    measure_overhead,
    memory_bound,
    overhead_table,
    sentences,
    serving,
    summary,
    tables,
)
from lingon.bench.worker_process import Worker, cpu_seconds
from lingon.bundle.manifest import Precision
from lingon.bundle.store import Bundle, write_bundle
from lingon.errors import LingonError
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.export.graphs.transformer import states
from lingon.serving.observability.metrics import Metrics
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.transformer import Transformer
from tests.support import echo_engine
from tests.support.load_points import point

ALL_CORES = frozenset(os.sched_getaffinity(0))


def test_the_ratio_is_of_loads_that_were_offered():
    found = {"lingon": [point(30, 20), point(40, 600)], "ctranslate2": [point(10, 20), point(20, 450)]}
    row = summary(1, {"lingon": 35.0, "ctranslate2": 21.0}, found)
    assert row["goodput_per_s"] == {"lingon": 30, "ctranslate2": 20}
    assert row["ratio"] == 1.5


def test_tables_and_chart_show_void_and_failed_points(tmp_path: Path):
    rows: list[dict[str, Any]] = []
    for system, points in {
        "lingon": [point(10, 20), point(20, 20, lag=40)],
        "ctranslate2": [point(10, math.inf)],
    }.items():
        rows += [{"kind": "load", "system": system, "beam_size": 4, **each.row()} for each in points]
    rows += [summary(4, {"lingon": 10.0, "ctranslate2": 5.0}, {"lingon": [point(10, 20)], "ctranslate2": []})]
    cells = [cell for table in tables(rows, Objective()) for column in table.columns for cell in column.cells]
    assert {"void", "lag 40", "never", "beam 4"} <= set(cells)
    draw(rows, Objective(), tmp_path / "serve.svg")
    assert "ctranslate2, p99" in (tmp_path / "serve.svg").read_text(encoding="utf-8")


def test_sentences_are_those_that_the_model_reads_in_the_order_of_the_seed(tmp_path: Path):
    bundle = echo_engine.bundle(tmp_path)
    texts = sentences(bundle, None, seed=1)
    assert 100 < len(texts) < 500
    assert texts == sentences(bundle, None, seed=1)
    assert sorted(texts) == sorted(sentences(bundle, None, seed=2))
    with pytest.raises(LingonError, match=r"tatoeba\.en-de\.test\.en\.gz"):
        sentences(bundle, tmp_path, seed=1)


@pytest.fixture
def tiny_bundle(tmp_path: Path) -> Bundle:
    """A bundle with random weights and a real tokenizer; its graphs run."""
    size = echo_engine.tokenizer().source_vocab
    torch.manual_seed(0)
    model, weights = (
        Transformer(TransformerSettings.model_validate({"preset": "tiny"}), size, size).eval(),
        WeightFiles(),
    )
    built = build(model, "fp32", weights, [], shortlist=False)
    declared = echo_engine.manifest(
        states=states(model), precisions={"fp32": Precision("CPUExecutionProvider", "random", built.reads)}
    )
    files = {**built.graphs, **weight_files(weights), "tokenizer.model": echo_engine.tokenizer_model()}
    return write_bundle(tmp_path / "en-de" / "1", declared, files)


def test_a_run_measures_starts_single_client_loads_and_memory_of_the_real_server(tiny_bundle: Bundle):
    plan = Plan(
        bundle=tiny_bundle,
        texts=["Tom lives in Boston.", "Where is the station?"],
        systems=(System(name=LINGON, command=lingon_command(tiny_bundle.folder, {"threads": 1})),),
        cpus=CpuPlan(server=ALL_CORES, client=ALL_CORES),
        threads=1,
        beam_sizes=(1,),
        seconds=0.3,
        warm_up=0.1,
        step=4,
        rounds=1,
        single_client_texts=3,
    )
    lines: list[str] = []
    rows = measure(plan, lines.append)
    kinds = [row["kind"] for row in rows]
    assert kinds == ["start", "one client", *["load"] * (len(rows) - 4), "summary", "memory"]
    assert kinds.count("load") >= 4
    client, memory = rows[1], rows[-1]
    assert client["overhead_ms"] == pytest.approx(client["median_ms"] - client["engine_median_ms"], abs=0.002)
    assert memory["precision"] == "fp32"
    assert 0 < memory["graphs_mb"] < 1
    assert memory["bound_mb"] >= 150
    assert 0 < memory["rested_mb"] <= memory["peak_mb"] + 1
    assert rows[2]["offered_per_s"] < rows[3]["offered_per_s"]


def test_numbers_of_clients_are_measured_one_after_the_other(tiny_bundle: Bundle):
    plan = Plan(
        bundle=tiny_bundle,
        texts=["Tom lives in Boston.", "Where is the station?"],
        systems=(System(name=LINGON, command=lingon_command(tiny_bundle.folder, {"threads": 1, "device": "cpu"})),),
        cpus=CpuPlan(server=ALL_CORES, client=ALL_CORES),
        beam_sizes=(1,),
        clients=(1, 8),
        seconds=0.5,
        warm_up=0.1,
    )
    lines: list[str] = []
    rows = measure(plan, lines.append)
    assert [(row["kind"], row["clients"], row["errors"]) for row in rows] == [("clients", 1, {}), ("clients", 8, {})]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert rows[1]["requests"] >= 8
    assert clients_table(rows).row_count == len(lines) == 2


def test_the_device_of_the_server_is_the_cpu_unless_another_is_given(tmp_path: Path):
    device_of = [lingon_command(tmp_path, given) for given in ({}, {"device": "cuda"})]
    assert [each[each.index("--device") + 1] for each in device_of] == ["cpu", "cuda"]


def test_both_servers_answer_every_request_and_cost_cpu_time(tmp_path: Path) -> None:
    bundle = echo_engine.bundle(tmp_path)
    rows = measure_overhead(
        bundle.folder, ["Tom", "sea"], CpuPlan.choose(), seconds=0.3, rounds=1, write=lambda _: None
    )
    assert sorted((row["kind"], row["clients"]) for row in rows) == [
        ("echo", 1), ("echo", 64), ("lingon", 1), ("lingon", 64),
    ]  # fmt: skip
    assert all(row["requests"] >= 5 and row["cpu_ms"] > 0 for row in rows)
    assert overhead_table(rows).row_count == 4


def test_cpu_time_is_that_of_the_process() -> None:
    before, end = cpu_seconds(os.getpid()), time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert cpu_seconds(os.getpid()) - before >= 0.1


USABLE = frozenset(os.sched_getaffinity(0))


def test_the_memory_bound_counts_graphs_and_reported_caches(tmp_path: Path):
    metrics = Metrics()
    for name, size in (("a", 2_000_000), ("b", 1_000_000)):
        metrics.model(name, 1).states_changed(size)
    text = generate_latest(metrics.registry).decode()
    assert gauge_sum(text, STATE_BYTES) == 3e6
    assert gauge_sum(text, "lingon_missing") is None
    assert memory_bound(graphs_mb=15, caches_mb=3) == 183
    assert loaded_mb(echo_engine.bundle(tmp_path), "fp32") == 0


def test_an_error_in_a_worker_is_raised_by_ask():
    with (
        Worker("lingon.bench.serve.baselines", "engine", cores=USABLE) as worker,
        pytest.raises(LingonError, match="gone: no such folder"),
    ):
        worker.ask(model="gone", precision=None, threads=1, texts=["Tom"])


def test_a_server_is_ready_after_its_ready_line_and_its_memory_is_known():
    code = (
        "import time; print('starting'); print('ready: x/1 on 127.0.0.1:7, metrics on 127.0.0.1:8 - more', flush=True)"
    )
    with serving([sys.executable, "-c", f"{code}; time.sleep(60)"], USABLE) as server:
        assert (server.address, server.metrics) == ("127.0.0.1:7", "127.0.0.1:8")
        assert 0 < server.seconds < 10
        assert 0 < server.memory()["rss_mb"] <= server.memory()["peak_mb"]
    with (
        pytest.raises(LingonError, match="no bundle here"),
        serving([sys.executable, "-c", "import sys; sys.exit('no bundle here')"], USABLE),
    ):
        pass
