"""The command `lingon bench serve`; it imports heavy modules only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingon.bench.options import serve as options
from lingon.bench.options import shared
from lingon.bench.options.serve import EngineKind
from lingon.cli.options.groups import with_option_groups

if TYPE_CHECKING:
    from lingon.bench.serve.plan import CpuPlan, Plan, System
    from lingon.bundle import Bundle


@with_option_groups
def serve(
    *,
    model: options.Model = Path("models/en-de"),
    ours: options.LingonServer,
    engine: options.Engine = EngineKind.ONNX,
    server: options.Server = None,
    with_peer: options.WithPeer = True,
    data: options.Data = None,
    load: options.Load,
    cores: options.Cores,
    peer: options.Peer,
    results: shared.Results = None,
    quick: options.Quick = False,
) -> None:
    """Measure throughput and latency of the server under open-loop load, and compare it with CTranslate2."""
    import tempfile

    from rich.console import Console

    from lingon.bench.results_file import results_folder
    from lingon.bench.serve.plan import CpuPlan, ctranslate2_systems, lingon_system, sentences
    from lingon.bench.serve.run import measure
    from lingon.bundle import open_bundle

    console, bundle = Console(), open_bundle(model)
    results = results_folder(results, quick=quick)
    texts, cpus = sentences(bundle, data, load.seed), CpuPlan.choose(cores.server_core, cores.client_core)
    if engine is EngineKind.NULL:
        _measure_overhead(bundle, texts, cpus, min(load.seconds, 4.0), 1 if quick else load.rounds, results)
        return
    with tempfile.TemporaryDirectory() as folder:
        systems = [lingon_system(model, server, ours.flags())]
        if with_peer:
            systems += ctranslate2_systems(bundle, Path(folder) / "model", peer.flags(), console.print)
        plan = _plan(bundle, texts, systems, cpus, ours, load, quick=quick)
        rows = measure(plan, lambda line: console.print(line, style="dim", highlight=False))
    _report(rows, plan, results, ours=ours.flags(), peer=peer.flags() if len(systems) > 1 else None)


def _plan(
    bundle: Bundle,
    texts: list[str],
    systems: list[System],
    cpus: CpuPlan,
    ours: options.LingonServer,
    load: options.Load,
    *,
    quick: bool,
) -> Plan:
    """The plan of a run; quick: whether it is short."""
    from lingon.bench.serve.load.latency import Objective
    from lingon.bench.serve.plan import Plan

    return Plan(
        bundle=bundle,
        texts=texts,
        systems=tuple(systems),
        cpus=cpus,
        precision=ours.precision,
        threads=ours.threads,
        beam_sizes=tuple(load.beam_size or (1, 4)),
        clients=tuple(load.clients or ()),
        seconds=min(load.seconds, 2.0) if quick else load.seconds,
        warm_up=min(load.warm_up, 0.5) if quick else load.warm_up,
        step=max(load.step, 1.5) if quick else load.step,
        timeout=load.timeout,
        seed=load.seed,
        rounds=1 if quick else load.rounds,
        objective=Objective(milliseconds=load.objective_ms),
    )


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
