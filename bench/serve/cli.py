"""The command `lingon bench serve`; it imports heavy modules only when it runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lingon.bench.serve.plan import CpuPlan, Plan
    from lingon.bundle import Bundle


class EngineKind(StrEnum):
    """What decodes in Lingon's server."""

    ONNX = "onnx"
    NULL = "null"


def serve(
    model: Annotated[Path, typer.Argument(help="Bundle: models/NAME or models/NAME/VERSION.")] = Path("models/en-de"),
    precision: Annotated[
        str | None, typer.Option(help="Precision of Lingon's server (default: the server's choice).")
    ] = None,
    engines: Annotated[
        int | None, typer.Option(min=1, help="Engines of Lingon's server (default: the server's choice).")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of each engine of Lingon's server (default: the server's choice)."),
    ] = None,
    device: Annotated[str, typer.Option(help="Device of Lingon's server: auto, cpu or cuda.")] = "cpu",
    engine: Annotated[
        EngineKind, typer.Option(help="null: measure what a request costs without decoding, beside a bare gRPC echo.")
    ] = EngineKind.ONNX,
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Measure a running server. Default: Lingon's server is started."),
    ] = None,
    with_peer: Annotated[
        bool, typer.Option("--peer/--no-peer", help="Also measure CTranslate2 with a gRPC server.")
    ] = True,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with tatoeba.en-de.test.en.gz (default: the repository's 500 test sentences)."),
    ] = None,
    beam_size: Annotated[
        list[int] | None, typer.Option(min=1, help="Beam size; may be repeated (default: 1 and 4).")
    ] = None,
    clients: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Measure only the latency with so many clients that wait; may be repeated (default: the loads below).",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Measured seconds of a load point.")] = 10.0,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of the same load before the measured ones.")] = 2.0,
    step: Annotated[float, typer.Option(min=1.01, help="Factor between two loads near saturation.")] = 1.12,
    rounds: Annotated[int, typer.Option(min=1, help="Starts of each server, and rounds with a single client.")] = 5,
    objective_ms: Annotated[
        float, typer.Option(min=1, help="Objective: milliseconds that the 99th percentile of latency may have.")
    ] = 500.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Deadline of a request in seconds.")] = 5.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the arrival times and of the order of sentences.")] = 1,
    server_core: Annotated[int | None, typer.Option(help="Core of the servers (default: the first).")] = None,
    client_core: Annotated[int | None, typer.Option(help="Core of the load generator (default: the last).")] = None,
    peer_precision: Annotated[str, typer.Option(help="Precision of CTranslate2: fp32 or int8.")] = "int8",
    peer_workers: Annotated[int, typer.Option(min=1, help="Batches that CTranslate2 translates at the same time.")] = 2,
    peer_threads: Annotated[int, typer.Option(min=1, help="Threads of each worker of CTranslate2.")] = 1,
    peer_batch: Annotated[
        int | None, typer.Option(min=1, help="Sentences in a batch of CTranslate2, at most (default: 16).")
    ] = None,
    peer_wait_ms: Annotated[
        float | None, typer.Option(min=0, help="Milliseconds that CTranslate2 waits for a full batch (default: 0).")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder for the results. Default: bench/results, with --quick build/bench.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: one short round; some 2 minutes on 2 cores.")
    ] = False,
) -> None:
    """Measure throughput and latency of the server under open-loop load, and compare it with CTranslate2."""
    import tempfile

    from rich.console import Console

    from lingon.bench.results_file import results_folder
    from lingon.bench.serve.load.latency import Objective
    from lingon.bench.serve.plan import CpuPlan, Plan, ctranslate2_systems, lingon_system, sentences
    from lingon.bench.serve.run import measure
    from lingon.bundle import open_bundle

    console, bundle = Console(), open_bundle(model)
    results = results_folder(results, quick=quick)
    texts, cpus = sentences(bundle, data, seed), CpuPlan.choose(server_core, client_core)
    if engine is EngineKind.NULL:
        _measure_overhead(bundle, texts, cpus, min(seconds, 4.0), 1 if quick else rounds, results)
        return
    lingon_options = {"device": device, "precision": precision, "engines": engines, "threads": threads}
    ctranslate2_options = dict(
        precision=peer_precision,
        workers=peer_workers,
        threads=peer_threads,
        max_batch=peer_batch,
        max_wait_ms=peer_wait_ms,
    )
    with tempfile.TemporaryDirectory() as folder:
        systems = [lingon_system(model, server, lingon_options)]
        if with_peer:
            systems += ctranslate2_systems(bundle, Path(folder) / "model", ctranslate2_options, console.print)
        plan = Plan(
            bundle=bundle,
            texts=texts,
            systems=tuple(systems),
            cpus=cpus,
            precision=precision,
            threads=threads,
            beam_sizes=tuple(beam_size or (1, 4)),
            clients=tuple(clients or ()),
            seconds=min(seconds, 2.0) if quick else seconds,
            warm_up=min(warm_up, 0.5) if quick else warm_up,
            step=max(step, 1.5) if quick else step,
            timeout=timeout,
            seed=seed,
            rounds=1 if quick else rounds,
            objective=Objective(milliseconds=objective_ms),
        )
        rows = measure(plan, lambda line: console.print(line, style="dim", highlight=False))
    peer = ctranslate2_options if len(systems) > 1 else None
    _report(rows, plan, results, ours=lingon_options, peer=peer)


def _report(rows: list[dict[str, Any]], plan: Plan, results: Path, **options: Any) -> None:
    """Print the tables of a run, and write its results and its chart."""
    from rich.console import Console

    from lingon.bench.results_file import save
    from lingon.bench.serve.report import clients_table, draw, tables

    console = Console()
    if plan.clients:
        console.print(clients_table(rows))
        print(f"written: {save('serve-clients', rows, results, **options, pinned=not plan.cpus.shared)}")
        return
    for table in tables(rows, plan.objective):
        console.print(table)
    written = save("serve", rows, results, **options, pinned=not plan.cpus.shared)
    draw(rows, plan.objective, written.with_suffix(".svg"))
    print(f"written: {written} and {written.with_suffix('.svg').name}")


def _measure_overhead(
    bundle: Bundle, texts: list[str], cpus: CpuPlan, seconds: float, rounds: int, results: Path
) -> None:
    from rich.console import Console

    from lingon.bench.results_file import save
    from lingon.bench.serve.overhead import measure, table

    console = Console()
    rows = measure(bundle.folder, texts, cpus, seconds=seconds, rounds=rounds, write=console.print)
    console.print(table(rows))
    written = save("serve-null", rows, results, pinned=not cpus.shared, seconds=seconds, rounds=rounds)
    print(f"written: {written}")
