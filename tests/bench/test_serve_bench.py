"""The load generator, the figures of load points, and the batching of the CTranslate2 server."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from google.rpc import code_pb2
from prometheus_client import generate_latest

from lingon.bench.serve.ctranslate2_server.batching import Batcher, BatchPolicy, Search, pick
from lingon.bench.serve.ctranslate2_server.service import CTranslate2Service
from lingon.bench.serve.latency import OK, Answer, LoadPoint, Objective, best, saturated, summarise
from lingon.bench.serve.load import ClosedLoad, OpenLoad, Target, arrivals, from_json, ladder, to_json
from lingon.bench.serve.memory import STATE_BYTES, gauge_sum, loaded_mb, memory_bound
from lingon.bench.serve.plan import LINGON, CpuPlan, Plan, System, lingon_command, sentences
from lingon.bench.serve.processes import serving
from lingon.bench.serve.report import clients_table, draw, tables
from lingon.bench.serve.run import measure, summary
from lingon.bench.statistics import percentile
from lingon.bench.worker_process import Worker
from lingon.bundle import Bundle, Precision, write_bundle
from lingon.errors import LingonError, QueueFull, SettingsError
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.export.graphs.transformer.graphs import states
from lingon.serving.observability.metrics import Metrics
from lingon.text import EOS
from lingon.training.config import TransformerSettings
from lingon.training.models.transformer import Transformer
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support import echo_engine

GREEDY = Search(1, 0.0)
ALL_CORES = frozenset(os.sched_getaffinity(0))


def test_arrivals_are_determined_by_the_seed_and_have_the_offered_rate():
    found = arrivals(rate=200, seconds=50, texts=7, seed=3)
    assert found == arrivals(rate=200, seconds=50, texts=7, seed=3)
    assert found != arrivals(rate=200, seconds=50, texts=7, seed=4)
    assert len(found) == pytest.approx(10_000, rel=0.03)
    assert {arrival.text for arrival in found} == set(range(7))


def test_the_gaps_between_arrivals_are_those_of_a_poisson_process():
    due = [arrival.due for arrival in arrivals(rate=100, seconds=100, texts=1, seed=0)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(due)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert spread / mean == pytest.approx(1, abs=0.05)


def test_a_load_without_a_rate_is_rejected():
    with pytest.raises(SettingsError, match="rate above 0"):
        arrivals(rate=0, seconds=1, texts=1, seed=0)


def test_the_ladder_goes_from_light_loads_in_fine_steps_to_beyond_every_capacity():
    rungs = ladder({"a": 100, "b": 250}, step=1.1)
    assert rungs[:3] == [10, 25, 50]
    assert rungs[-1] > 3 * 250
    assert all(later / earlier == pytest.approx(1.1) for earlier, later in itertools.pairwise(rungs[2:]))


def test_percentiles_are_observed_values():
    assert [percentile(range(1, 101), percent) for percent in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([7.0], 99) == 7.0
    assert math.isnan(percentile([], 50))


def answers(latencies: Sequence[float], lag: float = 0.1, code: str = OK) -> list[Answer]:
    return [Answer(lag, latency, code) for latency in latencies]


def test_a_failed_request_counts_as_infinite_latency():
    found = answers([10] * 97) + answers([1] * 3, code="RESOURCE_EXHAUSTED")
    point = summarise(found, offered=10, seconds=10, objective=Objective())
    assert (point.achieved, point.goodput, point.p99, point.within) == (9.7, 9.7, math.inf, False)
    assert point.errors == {"RESOURCE_EXHAUSTED": 3}
    assert point.row()["p99_ms"] is None


def test_late_answers_count_as_achieved_but_not_as_goodput():
    point = summarise(answers([10] * 90 + [800] * 10), offered=10, seconds=10, objective=Objective())
    assert (point.achieved, point.goodput, point.within) == (10, 9, False)


def test_a_point_is_void_if_the_generator_was_late():
    assert not summarise(answers([10] * 100, lag=19), 10, 10, Objective()).void
    assert summarise(answers([10] * 100, lag=21), 10, 10, Objective()).void
    assert summarise([], 10, 10, Objective()).void


def point(offered: float, p99: float, lag: float = 1.0) -> LoadPoint:
    return summarise(answers([p99] * 100, lag), offered, 10, Objective())


def test_goodput_is_the_highest_valid_load_that_met_the_objective():
    points = [point(10, 20), point(20, 600), point(30, 499), point(40, 501), point(50, 10, lag=30)]
    chosen = best(points)
    assert chosen is not None
    assert chosen.offered == 30
    assert best([point(10, 501)]) is None


def test_a_system_is_saturated_after_two_misses_in_a_row():
    assert not saturated([point(10, 600), point(20, 20), point(30, 600)])
    assert not saturated([point(10, 600), point(20, 600, lag=30)])
    assert saturated([point(10, 20), point(20, 600), point(30, 10, lag=30), point(40, 700)])


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


def test_jobs_survive_json():
    target = Target(address="127.0.0.1:1", beam_size=4)
    jobs = [
        OpenLoad(target=target, offered=1.5, seconds=2, warm_up=1, seed=3),
        ClosedLoad(target=target, clients=4, requests=5, seconds=6),
    ]
    assert [from_json(to_json(job)) for job in jobs] == jobs


def test_the_memory_bound_counts_graphs_and_reported_caches(tmp_path: Path):
    metrics = Metrics()
    for name, size in (("a", 2_000_000), ("b", 1_000_000)):
        metrics.model(name, 1).states_changed(size)
    text = generate_latest(metrics.registry).decode()
    assert gauge_sum(text, STATE_BYTES) == 3e6
    assert gauge_sum(text, "lingon_missing") is None
    assert memory_bound(graphs_mb=15, caches_mb=3) == 183
    assert loaded_mb(echo_engine.bundle(tmp_path), "fp32") == 0


def test_a_core_that_this_process_may_not_use_is_rejected():
    with pytest.raises(SettingsError, match="--server-core must be one of"):
        CpuPlan.choose(10_000, None)


def test_sentences_are_those_that_the_model_reads_in_the_order_of_the_seed(tmp_path: Path):
    bundle = echo_engine.bundle(tmp_path)
    texts = sentences(bundle, None, seed=1)
    assert 100 < len(texts) < 500
    assert texts == sentences(bundle, None, seed=1)
    assert sorted(texts) == sorted(sentences(bundle, None, seed=2))
    with pytest.raises(LingonError, match=r"tatoeba\.en-de\.test\.en\.gz"):
        sentences(bundle, tmp_path, seed=1)


async def ask(worker: Worker, **message: Any) -> list[Answer]:
    found = await asyncio.to_thread(worker.ask, **message)
    return [Answer(*answer) for answer in found.get("answers", [])]


@asynccontextmanager
async def generator(texts: list[str]) -> AsyncIterator[Worker]:
    with Worker("lingon.bench.serve.generator", cores=ALL_CORES) as worker:
        await ask(worker, texts=texts)
        yield worker


async def test_latency_counts_from_the_time_at_which_a_request_was_due():
    """The engine stops for half a second: requests that were due in that time wait, and all are sent."""
    runner = echo_engine.EchoRunner(delay=0.002)
    async with echo_engine.running(runner) as server, generator(["Tom", "The old man and the sea"]) as worker:
        target = Target(address=f"127.0.0.1:{server.server.port}", timeout=5)
        load = OpenLoad(target=target, offered=60, seconds=1.5, warm_up=0.5, seed=1)
        task = asyncio.create_task(ask(worker, **to_json(load)))
        await asyncio.sleep(1.0)
        runner.gate.clear()
        await asyncio.sleep(0.5)
        runner.gate.set()
        found = await task
        single = await ask(worker, **to_json(ClosedLoad(target=target, clients=1, requests=5, seconds=60)))
    assert len(found) == sum(arrival.due >= 0.5 for arrival in arrivals(60, 2.0, 2, 1))
    assert {answer.code for answer in found} == {OK}
    waited = [answer for answer in found if answer.latency > 200]
    assert len(waited) >= 10
    assert max(answer.latency for answer in found) < 5000
    assert len(single) == 5


async def test_an_error_is_an_answer_with_its_code():
    async with generator(["Tom"]) as worker:
        target = Target(address="127.0.0.1:1", timeout=1)
        found = await ask(worker, **to_json(ClosedLoad(target=target, clients=1, requests=2, seconds=60)))
    assert [answer.code for answer in found] == ["UNAVAILABLE"] * 2


def test_an_early_exit_of_a_worker_is_one_line():
    with (
        Worker("lingon.bench.serve.load", cores=ALL_CORES) as worker,
        pytest.raises(LingonError, match="its process ended: exit code 0"),
    ):
        worker.ask(texts=[])


def test_an_error_in_a_worker_is_raised_by_ask():
    with (
        Worker("lingon.bench.serve.engine_baseline", cores=ALL_CORES) as worker,
        pytest.raises(LingonError, match="gone: no such folder"),
    ):
        worker.ask(model="gone", precision=None, threads=1, texts=["Tom"])


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


def test_a_server_is_ready_after_its_ready_line_and_its_memory_is_known():
    code = (
        "import time; print('starting'); print('ready: x/1 on 127.0.0.1:7, metrics on 127.0.0.1:8 - more', flush=True)"
    )
    with serving([sys.executable, "-c", f"{code}; time.sleep(60)"], ALL_CORES) as server:
        assert (server.address, server.metrics) == ("127.0.0.1:7", "127.0.0.1:8")
        assert 0 < server.seconds < 10
        assert 0 < server.memory()["rss_mb"] <= server.memory()["peak_mb"]
    with (
        pytest.raises(LingonError, match="no bundle here"),
        serving([sys.executable, "-c", "import sys; sys.exit('no bundle here')"], ALL_CORES),
    ):
        pass


def test_the_next_batch_has_the_oldest_sentence_and_those_of_similar_length():
    policy = BatchPolicy(max_batch=3, window=2)
    assert pick([5, 30, 6, 31, 4, 32, 5], policy) == [2, 0, 4]  # The seventh is outside the window.
    assert pick([9], policy) == [0]


class Echo:
    """A fake model that returns the source and records the batches."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.batches, self.released = seconds, list[list[int]](), threading.Event()
        self.released.set()

    def __call__(self, sources: list[Sequence[int]], search: Search) -> list[list[int]]:
        time.sleep(self.seconds)
        self.released.wait(10)
        if any(len(source) > 90 for source in sources):
            raise ValueError("too much")
        self.batches.append([len(source) for source in sources])
        return [[token for token in source if token != EOS] for source in sources]


async def test_queued_sentences_are_translated_together_and_each_gets_its_result():
    echo = Echo(0.02)
    batcher = Batcher(echo, workers=2, policy=BatchPolicy(max_batch=4, max_wait=0.05))
    sources = [[*range(10, 10 + length), EOS] for length in range(1, 9)]
    searches = [GREEDY if length % 2 else Search(4, 0.0) for length in range(1, 9)]
    found = await asyncio.gather(*map(batcher.translate, sources, searches))
    await batcher.close()
    assert found == [source[:-1] for source in sources]
    assert sorted(echo.batches) == [[8, 6, 4, 2], [9, 7, 5, 3]]


async def test_an_error_fails_only_its_batch_and_a_cancelled_sentence_is_not_translated():
    echo = Echo()
    echo.released.clear()
    batcher = Batcher(echo, workers=1, policy=BatchPolicy(max_batch=1, max_wait=0))
    first, left, bad, last = (asyncio.create_task(batcher.translate([7] * length, GREEDY)) for length in (1, 2, 99, 4))
    await asyncio.sleep(0.01)  # All are queued; the first is in the model.
    left.cancel()
    echo.released.set()
    with pytest.raises(ValueError, match="too much"):
        await bad
    assert (await first, await last) == ([7], [7] * 4)
    await batcher.close()
    assert echo.batches == [[1], [4]]


async def test_a_full_queue_rejects():
    batcher = Batcher(Echo(0.05), workers=1, policy=BatchPolicy(max_batch=1, max_wait=0, max_queue=2))
    found = await asyncio.gather(*(batcher.translate([7], GREEDY) for _ in range(4)), return_exceptions=True)
    await batcher.close()
    assert [isinstance(each, QueueFull) for each in found] == [False, False, True, True]


async def test_the_ctranslate2_server_follows_the_proto():
    batcher = Batcher(Echo(), workers=1, policy=BatchPolicy())
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (CTranslate2Service(echo_engine.manifest(), echo_engine.tokenizer(), batcher).handler(),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = pb_grpc.TranslationServiceStub(channel)
        reply = await stub.Translate(pb.TranslateRequest(texts=["Tom  lives in Boston.", " "]))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ListModels(pb.ListModelsRequest())
    await server.stop(None)
    await batcher.close()
    assert reply.results[0].hypotheses[0].text == "Tom lives in Boston."
    assert reply.results[0].usage.target_tokens == reply.results[0].usage.source_tokens
    assert reply.results[1].status.code == code_pb2.INVALID_ARGUMENT
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
