"""Loading a bundle: from files on disk to a translator that is verified and warm.

Before a model is served, it translates and aligns its golden sentences with the same result as at its export.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from lingon.bundle.golden import Golden, GoldenLink, alignment_links
from lingon.bundle.manifest import PASSED, poor_quality
from lingon.bundle.names import GOLDEN, OUTPUT_ROWS, WEIGHTS
from lingon.bundle.store import Bundle, bundles_below, is_bundle, use_highest_whole
from lingon.errors import BundleError, DeviceError, SettingsError
from lingon.machine import MAX_DEFAULT_ENGINES, usable_cores
from lingon.serving.decoding.rules import Vocabulary
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.scheduler import Observer
from lingon.serving.observability.logs import event
from lingon.serving.runtime.device import (
    CPU,
    OWN_OPERATORS,
    DeviceChoice,
    choose_device,
    native_left_out,
    preferred_native,
)
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import Runner
from lingon.serving.runtime.sessions import GraphLoadError, as_graph_load_error
from lingon.serving.runtime.validation import check_scorer, check_search, checked_tokenizer
from lingon.serving.second.second_translator import SecondTranslator
from lingon.serving.threads import run_at_low_priority
from lingon.serving.translation.cache import TranslationCache
from lingon.serving.translation.options import WHOLE
from lingon.serving.translation.translator import Translator, describe
from lingon.translation.v1 import translation_pb2 as pb

MOST_THREADS = 1024  # of all engines of a model; each takes memory, and no machine has more cores


def default_engines() -> int:
    """Return the default number of engines of a model on the CPU: one per core, at most MAX_DEFAULT_ENGINES."""
    return min(usable_cores(), MAX_DEFAULT_ENGINES)


def threads_per_engine(engines: int) -> int:
    """Return the threads of each engine, at least 1, so that all engines together use the usable cores."""
    return max(usable_cores() // engines, 1)


SESSION_BYTES = 8 << 20  # bytes; of the sessions, tables and states of a small model beside its files
EXACT = "fp32"
FIRST_GOLDEN = 4  # golden sentences that a load on demand translates before the model answers; all follow later
MAX_DIFFERENT = 0.25  # share of the golden sentences, or links; a broken model translates or aligns all differently
MAX_WEIGHT_DIFFERENCE = 0.05  # difference of the weights of a link; other processors and GPUs sum in another order


def check_golden(
    bundle: Bundle,
    runner: Runner,
    precision: str,
    workers: int = 1,
    translator: Translator | None = None,
    *,
    first: int | None = None,
) -> None:
    """Translate and align the golden sentences of a bundle. Raises BundleError if a translation fails or differs.

    At most MAX_DIFFERENT of the links of the alignments may differ. A bundle may have no golden sentences. Precisions
    for GPUs have no golden translations, because results differ between GPUs. At most MAX_DIFFERENT of their
    translations may differ from those of EXACT. If no GPU was available at the export, this is the first check of such
    a precision.

    translator: of the bundle, if there is one; its engine is not used
    first: how many sentences to translate; their alignments are not checked then, which needs the scorer. Default: all
    """
    golden = golden_of(bundle)
    expected = golden.translations.get(precision, golden.translations.get(EXACT)) if golden else None
    if golden is None or expected is None:
        event(logging.getLogger(__name__), logging.INFO, "no golden sentences", model=bundle.label, precision=precision)
        return
    alignments = golden.alignments.get(precision, golden.alignments.get(EXACT, ()))
    aligned = bool(first is None and alignments and bundle.manifest.alignment.heads)
    options = pb.DecodingOptions(return_alignment=aligned)
    with as_graph_load_error(f"{bundle.folder / GOLDEN}: the sentences cannot be translated in {precision}"):
        sentences, languages = golden.sentences[:first], golden.languages[:first]
        found = translate(bundle, runner, sentences, options, languages, workers, translator)
    pairs = enumerate(zip(found, expected[:first], strict=True), 1)
    different = [index for index, (one, text) in pairs if one.status.code or one.hypotheses[0].text != text]
    if precision in golden.translations and different:
        raise BundleError(
            f"{bundle.folder / GOLDEN}: sentence {different[0]} of {len(found)} is translated otherwise than at the "
            f"export, in {precision}"
        )
    most = int(MAX_DIFFERENT * len(found))
    if len(different) > most:
        raise BundleError(
            f"{bundle.folder / GOLDEN}: {len(different)} of {len(found)} sentences are translated otherwise in "
            f"{precision} than in {EXACT} at the export; at most {most} may be"
        )
    if aligned:
        same = [index for index in range(len(found)) if index + 1 not in different]
        pairs_of_links = [(alignment_links(alignments[index]), links(found[index].hypotheses[0])) for index in same]
        _check_alignments(bundle, precision, pairs_of_links)


def golden_of(bundle: Bundle) -> Golden | None:
    """Return the golden sentences of a bundle, or None if it has none."""
    if GOLDEN not in bundle.manifest.checksums:
        return None
    return Golden.from_bytes(bundle.read(GOLDEN), bundle.folder / GOLDEN)


def links(hypothesis: pb.Hypothesis) -> list[GoldenLink]:
    """Return the alignment of a hypothesis in the form of golden sentences."""
    return [(link.source.begin, link.target.begin, link.weight) for link in hypothesis.alignment]


def _check_alignments(
    bundle: Bundle, precision: str, pairs: Sequence[tuple[list[GoldenLink], list[GoldenLink]]]
) -> None:
    """Raise BundleError if too many links differ; pairs: links at the export and at this load."""
    total = sum(max(len(expected), len(found)) for expected, found in pairs)
    different = total - sum(_same_links(expected, found) for expected, found in pairs)
    most = int(MAX_DIFFERENT * total)
    if different > most:
        raise BundleError(
            f"{bundle.folder / GOLDEN}: {different} of {total} links of the alignments differ from those of the "
            f"export, in {precision}; at most {most} may"
        )


def _same_links(expected: list[GoldenLink], found: list[GoldenLink]) -> int:
    """Return the number of expected links that were found, between the same pieces and with nearly the same weight."""
    left = list(found)
    for source, target, weight in expected:
        near = [
            each for each in left if each[:2] == (source, target) and abs(each[2] - weight) <= MAX_WEIGHT_DIFFERENCE
        ]
        if near:
            left.remove(near[0])
    return len(found) - len(left)


def translate(
    bundle: Bundle,
    runner: Runner,
    sentences: Sequence[str],
    options: pb.DecodingOptions,
    pairs: Sequence[tuple[str, str]] = (),
    workers: int = 1,
    translator: Translator | None = None,
) -> list[pb.TextResult]:
    """Translate sentences in one batch, unsplit, with the bundle's default options where `options` sets none.

    pairs: the pair of each sentence, for a bundle of several languages; raises BundleError for a missing one
    translator: of the bundle, if there is one; its engine is not used

    Alignments are those of the scorer, so that they check it. A separate engine translates the sentences, so that the
    metrics of the model do not count them.
    """
    limits = EngineLimits()
    engine = Engine(runner, limits, workers=workers)
    engine.start(scorer=False)
    try:
        shortlist = bundle.manifest.defaults.shortlist if runner.shortlist else None
        if translator is None:
            translator = Translator(bundle, engine, limits, shortlist=shortlist)
        else:
            translator = translator.with_engine(engine, limits, shortlist)
        translator.keeps_attention = False
        work = _translate(translator, sentences, options, pairs)
        with ThreadPoolExecutor(1) as thread:  # the calling thread may already run an event loop
            return thread.submit(asyncio.run, work).result()
    finally:
        engine.stop(0)


async def _translate(
    translator: Translator, sentences: Sequence[str], options: pb.DecodingOptions, pairs: Sequence[tuple[str, str]]
) -> list[pb.TextResult]:
    """Return the results in the order of the sentences. The sentences of one pair are one request."""
    given = pairs or [("", "")] * len(sentences)
    results: dict[int, pb.TextResult] = {}
    for pair in dict.fromkeys(given):
        own = [index for index, each in enumerate(given) if each == pair]
        try:
            served = translator.for_pair(*pair)
        except KeyError:
            raise BundleError(f"{translator.label}: {GOLDEN} has {' '.join(pair)}, no pair of the manifest") from None
        request = pb.TranslateRequest(texts=[sentences[index] for index in own], options=options, text=WHOLE)
        results.update(zip(own, (await served.translate(request)).results, strict=True))
    return [results[index] for index in range(len(sentences))]


logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadOptions:
    """Options for loading a bundle.

    device: auto, cpu or cuda
    precision: None uses the bundle's best one for the device
    engines: batches that run in parallel; None uses several on a CPU and one on a GPU
    threads: cores of each engine while all of them compute; None uses an equal share of the usable cores
    shortlist: whether requests use the vocabulary shortlist by default; None uses the value of the bundle
    cuda_graphs: whether decoder steps on CUDA are recorded and replayed
    failpoints: faults to inject, for tests
    golden: whether to check the golden sentences first, see lingon.serving.models.loading
    low_priority: whether to load at low priority, because other models are served meanwhile
    one_thread: whether to load one part after the other, because the other cores compute for callers of other models
    on_demand: whether a request waits for the load. Only the files that are used are verified.
        The scorer is loaded and checked later, by `complete` of the translator, which raises as `load_translator`
    proven: whether this process has loaded and checked the same bytes before. They are verified, loaded and warmed up
    cache: results of earlier requests; None decodes every text
    second: is asked about doubtful sentences; None leaves them as they are
    on_phase: called with one of lingon.serving.observability.metrics.PHASES when it begins
    """

    device: str = "auto"
    precision: str | None = None
    engines: int | None = None
    threads: int | None = None
    shortlist: bool | None = None
    cuda_graphs: bool = False
    limits: EngineLimits = field(default_factory=EngineLimits)
    observer: Observer | None = None
    failpoints: Failpoints | None = None
    golden: bool = False
    low_priority: bool = False
    one_thread: bool = False
    on_demand: bool = False
    proven: bool = False
    cache: TranslationCache | None = None
    second: SecondTranslator | None = None
    on_phase: Callable[[str], None] = lambda phase: None

    def __post_init__(self) -> None:
        if (total := (self.engines or 1) * (self.threads or 1)) > MOST_THREADS:
            raise SettingsError(f"engines times threads must be at most {MOST_THREADS:,}, got {total:,}")


LoadFunction: TypeAlias = Callable[[Bundle, LoadOptions], Translator]
"""Loads a bundle. Tests replace `load_translator` by another one."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is known of a model before it is loaded.

    memory_bytes: memory that it takes while it is loaded and idle: its files, mapped or read, and its sessions
    """

    description: pb.Model
    memory_bytes: int


def list_bundle(bundle: Bundle, options: LoadOptions) -> Listing:
    """Return what a server shows of a model that it has not loaded. Of the files only the sizes are read.

    Raises DamagedBundle if a file is missing, and DeviceError as `load_translator`.
    """
    choice = choose_device(bundle, options.device, options.precision)
    shortlist = f"{choice.precision}/{OUTPUT_ROWS}" in bundle.manifest.checksums
    default = bundle.manifest.defaults.shortlist if options.shortlist is None else options.shortlist
    described = describe(bundle.manifest, choice.precision, choice.provider, default if shortlist else None)
    return Listing(described, loaded_bytes(bundle, choice.precision))


def loaded_bytes(bundle: Bundle, precision: str) -> int:
    """Return about the bytes of memory that a loaded model takes while it is idle."""
    read = [name for name in bundle.manifest.checksums if name.startswith(f"{precision}/")]
    read += [f"{WEIGHTS}/{name}" for name in bundle.manifest.precisions[precision].weights]
    return SESSION_BYTES + sum(map(bundle.size, read))


def model_folders(paths: Iterable[Path]) -> list[Path]:
    """Return the folders of the models at paths: each a bundle, or the folder of a model's versions.

    A path is one of these, or a folder of such folders. Raises BundleError.
    """
    return [folder for path in paths for folder in _folders(path)]


def model_names(folders: Iterable[Path]) -> list[str]:
    """Return the names of models and of their versions, from their manifests only. Raises BundleError."""
    manifests = (use_highest_whole(folder, lambda bundle: bundle.manifest) for folder in folders)
    return [name for each in manifests for name in (each.name, f"{each.name}/{each.version}")]


def load_translator(bundle: Bundle, options: LoadOptions) -> Translator:
    """Load a model, verify all checksums, warm it up and return it.

    Raises DamagedBundle if a file is missing or altered, BundleError if the files do not fit together, DeviceError if
    the bundle cannot run on the device, and SettingsError if a shortlist is required that the bundle does not have.
    """
    choice = choose_device(bundle, options.device, options.precision)
    _warn_if_unproven(bundle, choice)
    _warn_if_not_native(bundle, choice, options)
    if poor := poor_quality(bundle.manifest.measured_bleu()):
        event(logger, logging.WARNING, poor, model=bundle.label)
    options.on_phase("checksums")
    run_at_low_priority(bundle.check_listed if options.on_demand else bundle.verify, options.low_priority)
    engines = _engine_count(options, choice)
    threads, shared_threads = _session_threads(engines, options.threads)
    _warn_if_too_many(bundle, engines, options.threads)
    options.on_phase("sessions")
    load = partial(
        load_runner,
        bundle,
        threads=threads,
        shared_threads=shared_threads,
        low_priority=options.low_priority,
        one_thread=options.one_thread,
        cuda_graphs=options.cuda_graphs,
        on_demand=options.on_demand,
    )
    with ThreadPoolExecutor(1) as thread:  # on another core, because ONNX Runtime does not hold the lock of Python
        reading = thread.submit(_read_vocabulary, bundle, options)
        if options.one_thread:
            reading.result()
        choice, runner = _load(load, bundle, choice, options)
        vocabulary = reading.result()
    options.on_phase("checks")
    if not options.proven:
        run_at_low_priority(partial(check_search, bundle, choice.precision, runner), options.low_priority)
    if options.shortlist and runner.shortlist is None:
        raise SettingsError(f"shortlist: {bundle.label} has none for {choice.precision}")
    default = bundle.manifest.defaults.shortlist if options.shortlist is None else options.shortlist
    faulty = FaultyRunner(runner, options.failpoints) if options.failpoints else runner
    engine = Engine(faulty, options.limits, options.observer, workers=engines)
    complete = partial(_complete, bundle, choice.precision, runner, options)
    translator = Translator(
        bundle,
        engine,
        options.limits,
        precision=choice.precision,
        provider=choice.provider,
        graph_bytes=runner.graph_bytes,
        shortlist=default if runner.shortlist else None,
        vocabulary=vocabulary,
        complete=complete,
        cache=options.cache,
        second=options.second,
    )
    if not options.on_demand:
        for _ in translator.complete():
            pass
    if options.golden and not options.proven:
        options.on_phase("golden_sentences")
        check = partial(
            check_golden,
            bundle,
            runner,
            choice.precision,
            workers=1 if options.one_thread else engines,
            translator=translator,
            first=FIRST_GOLDEN if options.on_demand else None,
        )
        run_at_low_priority(check, options.low_priority)
    options.on_phase("warm_up")
    engine.start(
        scorer=not options.on_demand
    )  # last, because a failure above must leave no thread that keeps the model in memory
    return translator


def _read_vocabulary(bundle: Bundle, options: LoadOptions) -> Vocabulary:
    # The tables are made at full priority. A thread of low priority with the lock of Python delays all others.
    return Vocabulary(run_at_low_priority(partial(checked_tokenizer, bundle), options.low_priority))


def _complete(
    bundle: Bundle, precision: str, runner: OnnxRunner, options: LoadOptions, translator: Translator
) -> Iterator[bool]:
    """Load the scorer and check it, unless the process has checked the same bytes before. Yields True between parts.

    After a load on demand all golden sentences follow, with their alignments, which need the scorer.
    """
    _ = runner.scorer  # made here, because the threads of a session keep the priority of the thread that makes it
    if not options.proven:
        run_at_low_priority(partial(check_scorer, bundle, precision, runner), options.low_priority)
        if options.on_demand:
            yield True
            if options.golden:
                check = partial(check_golden, bundle, runner, precision, translator=translator)
                run_at_low_priority(check, options.low_priority)
                yield True
    if options.on_demand:
        runner.release_pages()


def _engine_count(options: LoadOptions, choice: DeviceChoice) -> int:
    """Return the number of engines of a model: the option, or by default several on the CPU and one on a card."""
    if options.engines is not None:
        return options.engines
    return default_engines() if choice.provider == CPU else 1


def _load(
    load: Callable[[str], OnnxRunner], bundle: Bundle, choice: DeviceChoice, options: LoadOptions
) -> tuple[DeviceChoice, OnnxRunner]:
    """Load the chosen precision, or another one if its graphs need other native operators than those installed."""
    try:
        return choice, load(choice.precision)
    except GraphLoadError as error:
        if choice.precision not in OWN_OPERATORS or options.precision is not None:
            raise
        with suppress(DeviceError):  # there is no other precision
            choice = choose_device(bundle, options.device, native=False)
        if choice.precision in OWN_OPERATORS:
            raise
        reason = f"the graphs of the bundle do not fit these native operators; export it again ({error})"
    event(logger, logging.WARNING, _instead_of_native(bundle, choice), model=bundle.label, reason=reason)
    _warn_if_unproven(bundle, choice)
    return choice, load(choice.precision)


def _session_threads(engines: int, threads: int | None) -> tuple[int, int]:
    """Return the threads of a session while one engine computes, and while all do; threads: cores of an engine."""
    if threads is None:
        threads = threads_per_engine(engines)
    # The calling thread, which is the engine's own, computes along with the pool of the session.
    return engines * threads, 1 + engines * (threads - 1)


def _warn_if_too_many(bundle: Bundle, engines: int, threads: int | None) -> None:
    """Log a warning if the engines have more threads than cores, because all would then wait for each other."""
    total, cores = engines * (threads or 1), usable_cores()
    if total > cores:
        message = "more threads than usable cores make loading and decoding slow; lower threads or engines"
        fields = {"engines": engines, "threads_of_each": threads or 1, "usable_cores": cores}
        event(logger, logging.WARNING, message, model=bundle.label, **fields)


def _warn_if_unproven(bundle: Bundle, choice: DeviceChoice) -> None:
    """Log a warning if the export did not verify this precision, because neither replies nor metrics show it."""
    gate = bundle.manifest.precisions[choice.precision].gate
    if gate != PASSED:
        message = "this precision has not passed the gate of its export"
        event(logger, logging.WARNING, message, model=bundle.label, precision=choice.precision, gate=gate)


def _warn_if_not_native(bundle: Bundle, choice: DeviceChoice, options: LoadOptions) -> None:
    """Log a warning if the faster graphs of a bundle are not used although no setting selects others."""
    if options.precision is None and (reason := native_left_out(bundle, choice)):
        event(logger, logging.WARNING, _instead_of_native(bundle, choice), model=bundle.label, reason=reason)


def _instead_of_native(bundle: Bundle, choice: DeviceChoice) -> str:
    return f"serves {choice.precision} instead of {preferred_native(bundle, choice.provider)}"


def _folders(path: Path) -> list[Path]:
    if is_bundle(path) or not path.is_dir():
        return [path]
    found, unreadable = bundles_below(path)
    for folder in unreadable:  # such as lost+found of a volume
        event(logger, logging.WARNING, "a folder cannot be read, and is left out", folder=str(folder))
    if not found:
        raise BundleError(
            f"{path}: no bundle is here or one folder below; make one with: lingon export CHECKPOINT {path}/NAME"
        )
    return found
