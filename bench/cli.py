"""The commands of `lingon bench` and their options. Heavy modules are imported only when a command runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.bench.options import CACHE, BeamSizes, Cache, Results, Resume, Train, results_folder
from lingon.cli.options import OptionGroup, OwnDeviceOption, with_option_groups


class EngineKind(StrEnum):
    """The engine of Lingon's server."""

    ONNX = "onnx"
    NULL = "null"


@dataclass(frozen=True, kw_only=True, slots=True)
class LingonServer(OptionGroup):
    """The options of Lingon's server."""

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
        """Return the values by the names of the flags of `lingon serve`."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Load(OptionGroup):
    """The offered load, and the objective of the answers."""

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
    seed: Annotated[int, typer.Option(min=0, help="Seed of the arrival times and of the order of sentences.")] = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer(OptionGroup):
    """The options of the server for CTranslate2."""

    peer_precision: Annotated[str, typer.Option(help="Precision of CTranslate2: fp32 or int8.")] = "int8"
    peer_workers: Annotated[int, typer.Option(min=1, help="Batches that CTranslate2 translates at the same time.")] = 2
    peer_threads: Annotated[int, typer.Option(min=1, help="Threads of each worker of CTranslate2.")] = 1

    def flags(self) -> dict[str, Any]:
        """Return the values by the names of the flags of the server for CTranslate2."""
        return {"precision": self.peer_precision, "workers": self.peer_workers, "threads": self.peer_threads}


def decode(
    work: Annotated[
        list[str] | None,
        typer.Option(
            help="Workload: base (random weights), shipped (--model), or weights that copy in the shape of a public "
            "model: tiny, base-memory, student-base, smallest, opus, m2m or nllb; may be repeated. (default: base and "
            "shipped)"
        ),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="lingon, ctranslate2, transformers, optimum or fxtranslate; may be repeated. (default: all)"),
    ] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="Precision: fp32 or int8; may be repeated. (default: both)")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Batch size: 1, 8, 32 or 128; may be repeated. (default: all)")
    ] = None,
    beam_size: BeamSizes = None,
    runs: Annotated[int, typer.Option(help="Measured runs of each engine setting in each cell.")] = 7,
    slow: Annotated[float, typer.Option(help="Seconds: a setting whose run takes longer gets at most 3 runs.")] = 10.0,
    sentences: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sentences of each test set of the workload shipped, or of a shape. (default: 512, of a shape 64)",
        ),
    ] = None,
    model: Annotated[
        list[Path] | None, typer.Option(help="Bundle of the workload shipped; may be repeated. (default: models/en-de)")
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
    from lingon.bench.decode import DecodeOptions, run

    options = DecodeOptions(
        workloads=tuple(work or ()),
        engines=tuple(engine or ()),
        precisions=tuple(precision or ()),
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
    peer: Peer,
    results: Results = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: one short round; some 2 minutes on 2 cores.")
    ] = False,
) -> None:
    """Measure throughput and latency of the server under open-loop load, and compare it with CTranslate2."""
    from lingon.bench.serve.load import Objective
    from lingon.bench.serve.run import CpuPlan, Plan, run, run_null, sentences
    from lingon.bundle.store import open_bundle

    bundle = open_bundle(model)
    plan = Plan(
        bundle=bundle,
        texts=sentences(bundle, data, load.seed),
        cpus=CpuPlan.choose(),
        precision=ours.precision,
        threads=ours.threads,
        beam_sizes=tuple(load.beam_size or (1, 4)),
        clients=tuple(load.clients or ()),
        seconds=min(load.seconds, 2.0) if quick else load.seconds,
        warm_up=min(load.warm_up, 0.5) if quick else load.warm_up,
        step=max(load.step, 1.5) if quick else load.step,
        seed=load.seed,
        rounds=1 if quick else load.rounds,
        objective=Objective(milliseconds=load.objective_ms),
    )
    folder = results_folder(results, quick=quick)
    if engine is EngineKind.NULL:
        run_null(plan, folder)
    else:
        run(plan, model, server, ours.flags(), peer.flags() if with_peer else None, folder)


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

    The peak is the rate at which the device multiplies large matrices, measured in the same run.
    """
    from lingon.bench.train import Rounds, on_device, run, settings
    from lingon.training.processes import choose_device

    loaded = on_device(settings(config, tokenizer, data), choose_device(device).type, preset, batch_tokens)
    run(loaded, Rounds(rounds=rounds, updates=updates), threads, results)


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
    of the server. Ctrl-C saves a checkpoint and exits with code 130. The same command continues.
    """
    from lingon.bench.attention import CORPORA, SYSTEMS, Budget, Comparison, run, selected, write_samples

    folder = work or Path("build/bench") / ("attention-quick" if quick else "attention")
    if quick:
        system, corpus, data = system or ["rnnenc", "transformer"], corpus or ["multi30k"], folder / "samples"
        write_samples(data)
    budget = Budget.quick() if quick else Budget()
    comparison = Comparison(
        systems=selected(system, tuple(each.name for each in SYSTEMS), "--system"),
        corpora=selected(corpus, tuple(each.name for each in CORPORA), "--corpus"),
        configs=configs,
        data=data,
        work=folder,
        budget=replace(budget, steps=steps or budget.steps),
        device=device,
        train=train,
    )
    if not run(comparison, results_folder(results, quick=quick), lengths=lengths):
        raise typer.Exit(1)


def attention_cost(
    length: Annotated[
        list[int] | None,
        typer.Option(help="Positions of the sequence; may be repeated. (default: the powers of 2 from 16 to 2048)"),
    ] = None,
    dim: Annotated[int, typer.Option(help="Width of every layer, an even number.")] = 64,
    rounds: Annotated[int, typer.Option(help="Measured rounds, each with all layers.")] = 7,
    results: Results = None,
    quick: Annotated[bool, typer.Option("--quick", help="Try it out: three short lengths, 2 rounds; seconds.")] = False,
) -> None:
    """Measure time and memory of attention and other sequence layers as the length grows, next to the theory.

    The layers: self-attention with its matrix and fused, windowed and linear attention, a fully connected layer over
    the whole sequence, a convolution and a GRU. Also draws the costs, and the sinusoidal positional encoding.
    """
    from lingon.bench.attention_cost import CostOptions, run

    trial = CostOptions.quick() if quick else CostOptions()
    options = replace(
        trial, lengths=tuple(length or trial.lengths), dim=dim, rounds=min(rounds, trial.rounds) if quick else rounds
    )
    run(options, results_folder(results, quick=quick))


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
            help="lingon, lingon-native (fp16-native), lingon-cuda-graphs (fp16), transformers, transformers-static, "
            "torch-graph or ctranslate2; may be repeated. (default: all)"
        ),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Batch size: 1, 8, 64 or 256; may be repeated. (default: all)")
    ] = None,
    beam_size: BeamSizes = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse the run.")] = "cuda",
    runs: Annotated[int, typer.Option(help="Measured runs of each engine in each cell.")] = 5,
    slow: Annotated[float, typer.Option(help="Seconds: an engine whose run takes longer gets at most 3 runs.")] = 10.0,
    operators: Annotated[
        str,
        typer.Option(
            help="To rehearse fp16-native with --device cpu --quick: the Python module that emulates the operators for "
            "CUDA. (default: none, and fp16-native is left out there)"
        ),
    ] = "",
    results: Results = None,
    cache: Cache = CACHE,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: a tiny model, two batch sizes, few runs; some 2 minutes.")
    ] = False,
    resume: Resume = False,
) -> None:
    """Measure decoding on a card: Lingon, transformers, a bare PyTorch loop and CTranslate2, and the lower bound.

    Each cell is split into encoder, decoder steps and host, and the kernels of a step are counted.
    """
    from lingon.bench.gpu import GpuOptions, run

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
        operators=operators,
    )
    run(options, results_folder(results, quick=quick), cache.expanduser(), resume=resume)


def live(
    model: Annotated[Path, typer.Argument(help="Bundle: models/NAME or models/NAME/VERSION.")] = Path("models/en-de"),
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="quality (BLEU against lag), cost (CPU time of a word) or load (many speakers in real time); may be "
            "repeated. (default: all)"
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME or NAME:LAG, of local_agreement, wait_k, alignment and sentences; may be repeated. The "
            "first one is that of cost and load. (default: all with several lags; local_agreement)"
        ),
    ] = None,
    test_set: Annotated[
        list[str] | None,
        typer.Option(
            help="Test set, SET or SET.PART for the files SET.SOURCE-TARGET.PART.LANGUAGE in --data; may be repeated. "
            "(default: tatoeba and ntrex)"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the test sets. (default: the repository's tests/data, with 500 pairs)"),
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="Texts of each test set.")] = 1000,
    speakers: Annotated[int, typer.Option(min=1, help="Speakers of the load.")] = 200,
    seconds: Annotated[float, typer.Option(min=0.1, help="Measured seconds of the load.")] = 30.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which CPU times are compared.")] = 5,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="Setting of the server, NAME=VALUE as in `lingon serve`; may be repeated. (default: the server's own)"
        ),
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(help="Folder for the logs of all speakers, which SimulEval reads. (default: none)")
    ] = None,
    results: Results = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: few texts, speakers and policies; a minute.")
    ] = False,
) -> None:
    """Measure live translation: quality against lag, flicker, CPU time of a word, and many speakers at once.

    The words of the texts are spoken at 2.5 words a second, each for a time in proportion to its length.
    """
    from lingon.bench.live.run import PARTS, LivePlan, parsed, run, server_settings
    from lingon.bench.workloads import TEST_SETS
    from lingon.bundle.store import open_bundle

    chosen = [parsed(each) for each in policy or ()]
    named: dict[str, Any] = {"policies": tuple(chosen), "load_policy": chosen[0]} if chosen else {}
    trial: dict[str, Any] = {"rounds": 2, "cost_speakers": 8, "cost_seconds": 2.0} if quick else {"rounds": rounds}
    plan = LivePlan(
        bundle=open_bundle(model),
        data=data,
        test_sets=tuple(test_set or TEST_SETS),
        parts=tuple(part or PARTS),
        texts=min(texts, 10) if quick else texts,
        speakers=min(speakers, 8) if quick else speakers,
        seconds=min(seconds, 2.0) if quick else seconds,
        settings=server_settings(setting or ()),
        logs=logs,
        **named,
        **trial,
    )
    run(plan, results_folder(results, quick=quick))


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

    Ctrl-C saves a checkpoint and exits with code 130. The same command continues. The scores are BLEU over Moses
    tokens, and BLEU and chrF of sacreBLEU, with the mean of the last checkpoints and the last one, beam search and
    greedy.
    """
    from lingon.bench.multi30k import run

    folder = work or Path("build/bench") / ("multi30k-quick" if quick else "multi30k")
    run(pair, configs, folder, device, results_folder(results, quick=quick), train=train, quick=quick)


bench = typer.Typer(help="Measure decoding, serving, training and attention, and compare with other software.")
bench.command("attention")(attention)
bench.command("attention-cost")(attention_cost)
bench.command("decode")(decode)
bench.command("gpu")(gpu)
bench.command("live")(live)
bench.command("multi30k")(multi30k)
bench.command("serve")(serve)
bench.command("train")(train)
