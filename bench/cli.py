"""The commands of `lingon bench` and their options; they import heavy modules only when they run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingon.cli.options import OptionGroup, OwnDeviceOption, with_option_groups

if TYPE_CHECKING:
    from rich.console import Console

    from lingon.bench.attention.systems import Budget, Comparison
    from lingon.bench.serve.plan import CpuPlan, Plan, System
    from lingon.bundle.store import Bundle

# Options that several commands have.
Results = Annotated[
    Path | None, typer.Option(help="Folder for the results. Default: bench/results, with --quick build/bench.")
]
Cache = Annotated[Path, typer.Option(help="Folder for the models that the benchmark creates.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a run that was killed.")]
BeamSizes = Annotated[list[int] | None, typer.Option(help="1 or 4; may be repeated. (default: both)")]
Train = Annotated[
    bool, typer.Option("--train/--no-train", help="Train each run to its end, or measure it as far as it is.")
]

CACHE = Path("~/.cache/lingon/bench")
"""The default of Cache."""


class EngineKind(StrEnum):
    """What decodes in Lingon's server."""

    ONNX = "onnx"
    NULL = "null"


@dataclass(frozen=True, kw_only=True, slots=True)
class LingonServer(OptionGroup):
    """How Lingon's server is started."""

    precision: Annotated[
        str | None, typer.Option(help="Precision of Lingon's server (default: the server's choice).")
    ] = None
    engines: Annotated[
        int | None, typer.Option(min=1, help="Engines of Lingon's server (default: the server's choice).")
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of each engine of Lingon's server (default: the server's choice)."),
    ] = None
    device: Annotated[str, typer.Option(help="Device of Lingon's server: auto, cpu or cuda.")] = "cpu"

    def flags(self) -> dict[str, Any]:
        """The values by the names of the flags of `lingon serve`."""
        return {
            "device": self.device,
            "precision": self.precision,
            "engines": self.engines,
            "threads": self.threads,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Load(OptionGroup):
    """The load that is offered, and what is asked of the answers."""

    beam_size: Annotated[
        list[int] | None, typer.Option(min=1, help="Beam size; may be repeated (default: 1 and 4).")
    ] = None
    clients: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Measure only the latency with so many clients that wait; may be repeated (default: the loads below).",
        ),
    ] = None
    seconds: Annotated[float, typer.Option(min=0.1, help="Measured seconds of a load point.")] = 10.0
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of the same load before the measured ones.")] = 2.0
    step: Annotated[float, typer.Option(min=1.01, help="Factor between two loads near saturation.")] = 1.12
    rounds: Annotated[int, typer.Option(min=1, help="Starts of each server, and rounds with a single client.")] = 5
    objective_ms: Annotated[
        float, typer.Option(min=1, help="Objective: milliseconds that the 99th percentile of latency may have.")
    ] = 500.0
    timeout: Annotated[float, typer.Option(min=0.1, help="Deadline of a request in seconds.")] = 5.0
    seed: Annotated[int, typer.Option(min=0, help="Seed of the arrival times and of the order of sentences.")] = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingCores(OptionGroup):
    """The cores of servers and load."""

    server_core: Annotated[int | None, typer.Option(help="Core of the servers (default: the first).")] = None
    client_core: Annotated[int | None, typer.Option(help="Core of the load generator (default: the last).")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer(OptionGroup):
    """How CTranslate2 is served."""

    peer_precision: Annotated[str, typer.Option(help="Precision of CTranslate2: fp32 or int8.")] = "int8"
    peer_workers: Annotated[int, typer.Option(min=1, help="Batches that CTranslate2 translates at the same time.")] = 2
    peer_threads: Annotated[int, typer.Option(min=1, help="Threads of each worker of CTranslate2.")] = 1
    peer_batch: Annotated[
        int | None, typer.Option(min=1, help="Sentences in a batch of CTranslate2, at most (default: 16).")
    ] = None
    peer_wait_ms: Annotated[
        float | None, typer.Option(min=0, help="Milliseconds that CTranslate2 waits for a full batch (default: 0).")
    ] = None

    def flags(self) -> dict[str, Any]:
        """The values by the names of the flags of the server for CTranslate2."""
        return {
            "precision": self.peer_precision,
            "workers": self.peer_workers,
            "threads": self.peer_threads,
            "max_batch": self.peer_batch,
            "max_wait_ms": self.peer_wait_ms,
        }


def decode(
    work: Annotated[
        list[str] | None,
        typer.Option(help="Workload: base (random weights) or shipped (--model); may be repeated. (default: both)"),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="lingon, ctranslate2, transformers or optimum; may be repeated. (default: all)"),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Batch size: 1, 8, 32 or 128; may be repeated. (default: all)")
    ] = None,
    beam_size: BeamSizes = None,
    runs: Annotated[int, typer.Option(help="Measured runs of each engine setting in each cell.")] = 7,
    slow: Annotated[float, typer.Option(help="Seconds: a setting whose run takes longer gets at most 3 runs.")] = 10.0,
    sentences: Annotated[int, typer.Option(min=1, help="Sentences of each test set of the workload shipped.")] = 512,
    model: Annotated[
        list[Path] | None,
        typer.Option(help="Bundle of the workload shipped; may be repeated. (default: models/en-de)"),
    ] = None,
    test_set: Annotated[
        list[str] | None,
        typer.Option(
            help="Test set of the workload shipped, SET or SET.PART for the files SET.SOURCE-TARGET.PART.LANGUAGE in "
            "--data; may be repeated. (default: tatoeba and ntrex)"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the test sets of the workload shipped. (default: the repository's tests/data)"),
    ] = None,
    results: Results = None,
    cache: Cache = CACHE,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Try it out: a small model, few runs, few sentences; some 5 minutes on 2 cores."),
    ] = False,
    resume: Resume = False,
) -> None:
    """Measure the decoding time of Lingon and other engines on the same weights, and its lower bound."""
    from lingon.bench.decode.report import DecodeOptions, run
    from lingon.bench.results_file import results_folder

    options = DecodeOptions(
        workloads=tuple(work or ()),
        engines=tuple(engine or ()),
        batches=tuple(batch or ()),
        beam_sizes=tuple(beam_size or ()),
        runs=runs,
        slow=slow,
        sentences=sentences,
        models=tuple(model or [Path("models/en-de")]),
        data=data,
        test_sets=tuple(test_set or ()),
        quick=quick,
    )
    run(options, results_folder(results, quick=quick), cache.expanduser(), resume=resume)


@with_option_groups
def serve(
    *,
    model: Annotated[Path, typer.Argument(help="Bundle: models/NAME or models/NAME/VERSION.")] = Path("models/en-de"),
    ours: LingonServer,
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
    load: Load,
    cores: ServingCores,
    peer: Peer,
    results: Results = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: one short round; some 2 minutes on 2 cores.")
    ] = False,
) -> None:
    """Measure throughput and latency of the server under open-loop load, and compare it with CTranslate2."""
    import tempfile

    from rich.console import Console

    from lingon.bench.results_file import results_folder
    from lingon.bench.serve.plan import CpuPlan, ctranslate2_systems, lingon_system, sentences
    from lingon.bench.serve.run import measure
    from lingon.bundle.store import open_bundle

    console, bundle = Console(), open_bundle(model)
    results = results_folder(results, quick=quick)
    texts, cpus = sentences(bundle, data, load.seed), CpuPlan.choose(cores.server_core, cores.client_core)
    if engine is EngineKind.NULL:
        _measure_request_cost(bundle, texts, cpus, min(load.seconds, 4.0), 1 if quick else load.rounds, results)
        return
    with tempfile.TemporaryDirectory() as folder:
        systems = [lingon_system(model, server, ours.flags())]
        if with_peer:
            systems += ctranslate2_systems(bundle, Path(folder) / "model", peer.flags(), console.print)
        plan = _serving_plan(bundle, texts, systems, cpus, ours, load, quick=quick)
        rows = measure(plan, lambda line: console.print(line, style="dim", highlight=False))
    _report_serving(rows, plan, results, ours=ours.flags(), peer=peer.flags() if len(systems) > 1 else None)


def _serving_plan(
    bundle: Bundle,
    texts: list[str],
    systems: list[System],
    cpus: CpuPlan,
    ours: LingonServer,
    load: Load,
    *,
    quick: bool,
) -> Plan:
    """The plan of a run; quick: whether it is short."""
    from lingon.bench.serve.load import Objective
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


def _report_serving(rows: list[dict[str, Any]], plan: Plan, results: Path, **options: Any) -> None:
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


def _measure_request_cost(
    bundle: Bundle, texts: list[str], cpus: CpuPlan, seconds: float, rounds: int, results: Path
) -> None:
    from rich.console import Console

    from lingon.bench.results_file import save
    from lingon.bench.serve.run import measure_overhead, overhead_table

    console = Console()
    rows = measure_overhead(bundle.folder, texts, cpus, seconds=seconds, rounds=rounds, write=console.print)
    console.print(overhead_table(rows))
    written = save("serve-null", rows, results, pinned=not cpus.shared, seconds=seconds, rounds=rounds)
    print(f"written: {written}")


def train(
    config: Annotated[Path, typer.Argument(help="Configuration of the training run to measure.")] = Path(
        "configs/en-de.toml"
    ),
    tokenizer: Annotated[Path, typer.Option(help="Bundle or folder with the sentencepiece model.")] = Path(
        "models/en-de"
    ),
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with tatoeba.en-de.train.{en,de}.gz (default: the repository's 500 test pairs, repeated)."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds; each round runs --updates of every loop.")] = 7,
    updates: Annotated[int, typer.Option(min=1, help="Updates of a loop in a round.")] = 20,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of every loop (default: the number of cores).")
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto, cpu or cuda. On cuda both loops compute in bf16. (default: auto)")
    ] = "auto",
    preset: Annotated[
        str | None, typer.Option(help="Preset of the model (default: that of CONFIG, on cuda base).")
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Padded tokens of an update, on each side (default: of CONFIG, on cuda 32768)."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("bench/results"),
) -> None:
    """Measure target tokens a second of Lingon's training loop and of a plain loop on torch.nn.Transformer.

    The share of peak is that of the rate at which the device multiplies large matrices, measured in the same run.
    """
    import tempfile

    from rich.console import Console

    from lingon.bench.device_roofline import measure_device_peaks, peaks_of
    from lingon.bench.results_file import save
    from lingon.bench.train import Rounds, loop_settings, measure, on_device, settings, table
    from lingon.machine import usable_cores
    from lingon.training.processes import choose_device, multiplies_bf16

    console, chosen = Console(), choose_device(device).type
    loaded = on_device(settings(config, tokenizer, data), chosen, preset, batch_tokens)
    peaks = measure_device_peaks(chosen, rounds)
    loops = loop_settings(loaded, multiplies_bf16(Path("/proc/cpuinfo").read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(
            loaded,
            loops,
            Rounds(rounds=rounds, updates=updates),
            threads or usable_cores(),
            Path(folder),
            peaks_of(peaks),
            lambda line: console.print(line, style="dim", highlight=False),
        )
    console.print(table(rows))
    print(f"written: {save('train', rows, results, peaks=peaks)}")


def attention(
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="rnnenc, rnnsearch, luong-global, luong-local, luong-monotonic, transformer, or transformer-window, "
            "-additive, -rotary or -linear; may be repeated. (default: all, with --quick rnnenc and transformer)"
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="multi30k or tatoeba; may be repeated. (default: both, with --quick multi30k)"),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="Folder with the files of the corpora, CORPUS.en-de.PART.LANGUAGE.gz.")
    ] = Path(".corpora"),
    configs: Annotated[Path, typer.Option(help="Folder with the configs of the systems.")] = Path("configs/attention"),
    steps: Annotated[
        int | None,
        typer.Option(help="Updates of each training. (default: 1200, 12 to 15 minutes on one core; with --quick 12)"),
    ] = None,
    lengths: Annotated[
        bool,
        typer.Option(
            "--lengths/--no-lengths",
            help="Train rnnenc, rnnsearch and transformer twice more, on short texts, for BLEU by length.",
        ),
    ] = True,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder for runs, bundles and scores. What is there is not made again. "
            "Default: build/bench/attention, with --quick build/bench/attention-quick."
        ),
    ] = None,
    train: Train = True,
    device: Annotated[
        str, typer.Option(help="Device of the trainings: auto, cpu or cuda. Everything else runs on the CPU.")
    ] = "auto",
    results: Results = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: tiny models on sample sentences; some 10 seconds.")
    ] = False,
) -> None:
    """Train systems with and without attention alike, serve them, and compare quality, speed and word alignments.

    Every system trains for the same updates on the same text, is exported to a bundle, and translates with the engine
    of the server. Ctrl-C saves a checkpoint and exits with code 130; the same command goes on.
    """
    from rich.console import Console

    from lingon.bench.attention.report import WIDTH
    from lingon.bench.attention.systems import CORPORA, SYSTEMS, Comparison, selected, write_samples

    console = Console()
    console.width = max(console.width, WIDTH)
    folder = work or Path("build/bench") / ("attention-quick" if quick else "attention")
    if quick:
        system, corpus, data = system or ["rnnenc", "transformer"], corpus or ["multi30k"], folder / "samples"
        write_samples(data)
    comparison = Comparison(
        systems=selected(system, tuple(each.name for each in SYSTEMS), "--system"),
        corpora=selected(corpus, tuple(each.name for each in CORPORA), "--corpus"),
        configs=configs,
        data=data,
        work=folder,
        budget=_budget(steps, quick=quick),
        device=device,
        train=train,
        write=partial(console.print, style="dim", highlight=False),
    )
    _report_attention(comparison, console, results, lengths=lengths, quick=quick)


def _budget(steps: int | None, *, quick: bool) -> Budget:
    """The budget of each training; steps: its updates, if given."""
    from dataclasses import replace

    from lingon.bench.attention.systems import Budget

    budget = Budget.quick() if quick else Budget()
    return replace(budget, steps=steps or budget.steps)


def _report_attention(
    comparison: Comparison, console: Console, results: Path | None, *, lengths: bool, quick: bool
) -> None:
    """Measure, print the tables, and write results and chart; exit with code 1 if anything was left out."""
    from lingon.bench.attention.report import draw, length_table, signatures, table
    from lingon.bench.results_file import results_folder, save

    rows = comparison.rows()
    by_length = comparison.length_rows() if lengths else []
    console.print(table(rows))
    for line in (*signatures(rows), *comparison.left_out):
        print(line)
    facts = {"device": comparison.device, "left_out": comparison.left_out, "lengths": by_length}
    path = save("attention", rows, results_folder(results, quick=quick), **facts)
    print(f"written: {path}")
    if by_length:
        console.print(length_table(by_length))
        chart = path.with_name(path.name.replace("attention.json", "bleu-by-length.svg"))
        draw(by_length, chart)
        print(f"written: {chart}")
    if comparison.left_out:
        raise typer.Exit(1)


def attention_cost(
    length: Annotated[
        list[int] | None,
        typer.Option(help="Positions of the sequence; may be repeated. (default: the powers of 2 from 16 to 2048)"),
    ] = None,
    dim: Annotated[int, typer.Option(help="Width of every layer, an even number.")] = 64,
    radius: Annotated[int, typer.Option(help="Positions to each side that windowed attention sees.")] = 16,
    kernel: Annotated[int, typer.Option(help="Positions that the convolution sees, an odd number.")] = 3,
    rounds: Annotated[int, typer.Option(help="Measured rounds; each has all layers in turns.")] = 7,
    slow: Annotated[float, typer.Option(help="Seconds: a layer is left out where one call takes longer.")] = 5.0,
    memory: Annotated[float, typer.Option(help="GiB: a layer is left out where it needs more.")] = 2.0,
    threads: Annotated[int, typer.Option(help="Threads of every layer.")] = 1,
    results: Results = None,
    quick: Annotated[bool, typer.Option("--quick", help="Try it out: three short lengths, 2 rounds; seconds.")] = False,
) -> None:
    """Measure time and memory of attention and other sequence layers as the length grows, next to the theory.

    The layers: self-attention with its matrix and fused, windowed and linear attention, a fully connected layer over
    the whole sequence, a convolution and a GRU. Also draws the costs, and the sinusoidal positional encoding.
    """
    from rich.console import Console

    from lingon.bench.attention.cost import (
        WIDTH,
        CostOptions,
        draw,
        draw_positions,
        growth,
        left_out_lines,
        measure,
        tables,
    )
    from lingon.bench.results_file import results_folder, save

    trial = CostOptions.quick() if quick else CostOptions()
    options = CostOptions(
        lengths=tuple(length or trial.lengths),
        dim=dim,
        radius=radius,
        kernel=kernel,
        rounds=min(rounds, trial.rounds) if quick else rounds,
        shortest=trial.shortest,
        slow=slow,
        memory=memory,
        threads=threads,
    )
    console = Console()
    console.width = max(console.width, WIDTH)
    rows = measure(options, lambda line: console.print(line, style="dim", highlight=False))
    growths = growth(rows)
    for table in tables(rows, growths):
        console.print(table)
    for line in left_out_lines(rows):
        print(line)
    path = save("attention-cost", rows, results_folder(results, quick=quick), threads=threads, growth=growths)
    draw(rows, path.with_suffix(".svg"))
    positions = path.with_name(path.name.replace("attention-cost.json", "positional-encoding.svg"))
    draw_positions(positions)
    for each in (path, path.with_suffix(".svg"), positions):
        print(f"written: {each}")


def gpu(
    model: Annotated[
        list[str] | None,
        typer.Option(help="Transformer with random weights: base or big; may be repeated. (default: both)"),
    ] = None,
    work: Annotated[
        list[str] | None,
        typer.Option(help="Lengths: fixed (25 source, 30 target tokens) or mix; may be repeated. (default: both)"),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="lingon, lingon-cuda-graphs, transformers, transformers-static, torch-graph or ctranslate2; may be "
            "repeated. (default: all)"
        ),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Batch size: 1, 8, 64 or 256; may be repeated. (default: all)")
    ] = None,
    beam_size: BeamSizes = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse the run.")] = "cuda",
    runs: Annotated[int, typer.Option(help="Measured runs of each engine in each cell.")] = 5,
    slow: Annotated[float, typer.Option(help="Seconds: an engine whose run takes longer gets at most 3 runs.")] = 10.0,
    results: Results = None,
    cache: Cache = CACHE,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: a tiny model, two batch sizes, few runs; some 2 minutes.")
    ] = False,
    resume: Resume = False,
) -> None:
    """Measure decoding on a card: Lingon, transformers, a bare PyTorch loop and CTranslate2, and the lower bound."""
    from lingon.bench.gpu import GpuOptions, run
    from lingon.bench.results_file import results_folder

    options = GpuOptions(
        models=tuple(model or ()),
        workloads=tuple(work or ()),
        engines=tuple(engine or ()),
        batches=tuple(batch or ()),
        beam_sizes=tuple(beam_size or ()),
        device=device,
        runs=runs,
        slow=slow,
        quick=quick,
    )
    run(options, results_folder(results, quick=quick), cache.expanduser(), resume=resume)


def multi30k(
    pair: Annotated[
        list[str] | None,
        typer.Option(help="Language pair, en-de or en-fr; may be repeated. (default: both, with --quick en-de)"),
    ] = None,
    configs: Annotated[Path, typer.Option(help="Folder with a config for each pair, PAIR.toml.")] = Path(
        "configs/multi30k"
    ),
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a run of each pair, WORK/PAIR, and for translations. A run that is there goes on from its "
            "last checkpoint. Default: build/bench/multi30k, with --quick build/bench/multi30k-quick."
        ),
    ] = None,
    train: Train = True,
    device: OwnDeviceOption = "auto",
    results: Results = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: a tiny model on sample sentences, 12 updates; seconds.")
    ] = False,
) -> None:
    """Train the tiny Transformer of Wu et al. (2021) on Multi30k, and measure it as they did, next to their figures.

    Ctrl-C saves a checkpoint and exits with code 130; the same command goes on. The scores are BLEU over Moses tokens,
    and BLEU and chrF of sacreBLEU; with the mean of the last checkpoints and the last one, beam search and greedy.
    """
    from rich.console import Console

    from lingon.bench.multi30k import (
        PAIRS,
        PARTS,
        PUBLISHED,
        WIDTH,
        Row,
        measure,
        overrides,
        signatures,
        table,
        training_lines,
    )
    from lingon.bench.results_file import results_folder, save
    from lingon.bench.trained_runs import train as train_run
    from lingon.bench.trained_runs import write_sample_corpus
    from lingon.errors import SettingsError
    from lingon.training.config import load_config

    pairs = tuple(pair or (PAIRS[:1] if quick else PAIRS))
    if unknown := [each for each in pairs if each not in PAIRS]:
        raise SettingsError(f"--pair must be one of {', '.join(PAIRS)}, got {unknown[0]!r}")
    console, rows = Console(), list[Row]()
    console.width = max(console.width, WIDTH)
    write = partial(console.print, style="dim", highlight=False)
    folder = work or Path("build/bench") / ("multi30k-quick" if quick else "multi30k")
    for each in pairs:
        changed = [f"training.device={device}"]
        if quick:
            write_sample_corpus(folder / "corpus", f"multi30k.{each}", PARTS)
            changed += overrides(each, (folder / "corpus").resolve())
        config = load_config(configs / f"{each}.toml", changed)
        if train:
            train_run(config, folder / each)
        published = {} if quick else PUBLISHED[each]  # Sample sentences are no captions.
        rows += measure(config, each, folder / each, folder, device, published, write)
    console.print(table(rows))
    for line in (*training_lines(rows), *signatures(rows)):
        print(line)
    print(f"written: {save('multi30k', rows, results_folder(results, quick=quick), device=device)}")


bench = typer.Typer(help="Measure decoding, serving, training and attention, and compare with other software.")
bench.command("attention")(attention)
bench.command("attention-cost")(attention_cost)
bench.command("decode")(decode)
bench.command("gpu")(gpu)
bench.command("multi30k")(multi30k)
bench.command("serve")(serve)
bench.command("train")(train)
