"""The verb `lingon bench serve`. Nothing heavy is imported before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PEER_OPTION = "Of the peer: "


def serve(
    model: Annotated[Path, typer.Argument(help="models/NAME or models/NAME/VERSION.")] = Path("models/en-de"),
    precision: Annotated[str | None, typer.Option(help="Of our server (default: the one it picks).")] = None,
    engines: Annotated[int | None, typer.Option(min=1, help="Of our server.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of each engine of our server.")] = None,
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Measure a server that runs, in the place of ours.")
    ] = None,
    with_peer: Annotated[
        bool, typer.Option("--peer/--no-peer", help="Measure CTranslate2 behind a server of its own as well.")
    ] = True,
    data: Annotated[
        Path | None, typer.Option(help="Folder with tatoeba.en-de.test.en.gz (default: the tests' 500 sentences).")
    ] = None,
    beam_size: Annotated[list[int] | None, typer.Option(min=1, help="May be repeated (default: 1 and 4).")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of a load point.")] = 10.0,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of the same load before them.")] = 2.0,
    step: Annotated[float, typer.Option(min=1.01, help="From one load to the next near the knee.")] = 1.12,
    rounds: Annotated[int, typer.Option(min=1, help="Starts, and rounds of one client.")] = 5,
    objective_ms: Annotated[float, typer.Option(min=1, help="What the slowest of a hundred answers may take.")] = 500.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a request has.")] = 5.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the arrivals and the order of the sentences.")] = 1,
    server_core: Annotated[int | None, typer.Option(help="Of the servers (default: the first).")] = None,
    client_core: Annotated[int | None, typer.Option(help="Of the load generator (default: the last).")] = None,
    peer_precision: Annotated[str, typer.Option(help=f"{PEER_OPTION}fp32 or int8.")] = "int8",
    peer_workers: Annotated[int, typer.Option(min=1, help=f"{PEER_OPTION}batches at a time.")] = 2,
    peer_threads: Annotated[int, typer.Option(min=1, help=f"{PEER_OPTION}threads of a worker.")] = 1,
    peer_batch: Annotated[int | None, typer.Option(min=1, help=f"{PEER_OPTION}sentences of a batch.")] = None,
    peer_wait_ms: Annotated[float | None, typer.Option(min=0, help=f"{PEER_OPTION}waiting for a batch.")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("bench/results"),
    quick: Annotated[bool, typer.Option("--quick", help="A minute instead of many, to try it out.")] = False,
) -> None:
    """Throughput and latency of the server under open load, beside CTranslate2 behind a server."""
    import tempfile

    from rich.console import Console

    from lingon.bench.results_file import save
    from lingon.bench.serve.latency import Objective
    from lingon.bench.serve.plan import OTHER, OURS, Places, Plan, System, our_command, peer, sentences
    from lingon.bench.serve.report import draw, tables
    from lingon.bench.serve.run import measure
    from lingon.bundle import open_bundle

    console, bundle = Console(), open_bundle(model)
    ours = {"precision": precision, "engines": engines, "threads": threads}
    theirs = {
        "precision": peer_precision,
        "workers": peer_workers,
        "threads": peer_threads,
        "max_batch": peer_batch,
        "max_wait_ms": peer_wait_ms,
    }
    first = System(name=OTHER, address=server) if server else System(name=OURS, command=our_command(model, ours))
    with tempfile.TemporaryDirectory() as scratch:
        second = peer(bundle, Path(scratch) / "model", theirs, console.print) if with_peer else None
        plan = Plan(
            bundle=bundle,
            texts=sentences(bundle, data, seed),
            systems=(first, second) if second is not None else (first,),
            places=Places.choose(server_core, client_core),
            precision=precision,
            threads=threads,
            beam_sizes=tuple(beam_size or (1, 4)),
            seconds=min(seconds, 2.0) if quick else seconds,
            warm_up=min(warm_up, 0.5) if quick else warm_up,
            step=max(step, 1.5) if quick else step,
            timeout=timeout,
            seed=seed,
            rounds=1 if quick else rounds,
            objective=Objective(milliseconds=objective_ms),
        )
        rows = measure(plan, lambda line: console.print(line, style="dim", highlight=False))
    for table in tables(rows, plan.objective):
        console.print(table)
    written = save(
        "serve", rows, results, ours=ours, peer=None if second is None else theirs, pinned=not plan.places.shared
    )
    draw(rows, plan.objective, written.with_suffix(".svg"))
    print(f"written: {written} and {written.with_suffix('.svg').name}")
