"""Loading a bundle: from files on disk to a translator that is verified and warm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from lingon.bundle import PASSED, Bundle, bundles_below, is_bundle, use_highest_whole
from lingon.errors import BundleError, DeviceError, SettingsError
from lingon.machine import usable_cores
from lingon.quality import poor_quality
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.observer import Observer
from lingon.serving.models.golden import check_golden
from lingon.serving.observability.logs import event
from lingon.serving.runtime.device import CPU, NATIVES, DeviceChoice, choose_device, native_left_out, preferred_native
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.sessions.errors import GraphLoadError
from lingon.serving.runtime.validation import check_bundle
from lingon.serving.system.cpu import default_engines, threads_per_engine
from lingon.serving.system.threads import run_at_low_priority
from lingon.serving.translation.translator import Translator

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadOptions:
    """How a bundle is loaded.

    device: auto, cpu or cuda
    precision: None is the bundle's best for the device
    engines: batches that run in parallel; None is several on a CPU and one on a GPU
    threads: cores of each engine while all of them compute; None is an equal share of the usable cores
    shortlist: whether requests use the vocabulary shortlist by default; None is as the bundle says
    cuda_graphs: whether decoder steps on CUDA are recorded and replayed
    failpoints: faults to inject, for tests
    golden: whether to check the golden sentences first, see lingon.serving.models.golden
    low_priority: whether to load at low priority, because other models are being served
    on_phase: called with one of lingon.serving.observability.load_progress.PHASES when it begins
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
    on_phase: Callable[[str], None] = lambda phase: None


LoadFunction: TypeAlias = Callable[[Bundle, LoadOptions], Translator]
"""Loads a bundle; tests replace `load_translator` by another one."""


def model_folders(paths: Iterable[Path]) -> list[Path]:
    """The folders of models to serve at paths: each a bundle, or the folder of a model's versions.

    A path is one of these or a folder of such folders. Raises BundleError.
    """
    return [folder for path in paths for folder in _folders(path)]


def model_names(folders: Iterable[Path]) -> list[str]:
    """The names of models and of their versions by their manifests; nothing else is read. Raises BundleError."""
    manifests = (use_highest_whole(folder, lambda bundle: bundle.manifest) for folder in folders)
    return [name for each in manifests for name in (each.name, f"{each.name}/{each.version}")]


def load_translator(bundle: Bundle, options: LoadOptions) -> Translator:
    """Load a model, verify all checksums and warm it up; returns it ready to translate.

    Raises DamagedBundle if a file is missing or altered, BundleError if the files do not fit together, DeviceError if
    the bundle cannot run on the device, and SettingsError if a shortlist is required that the bundle does not have.
    """
    choice = choose_device(bundle, options.device, options.precision)
    _warn_if_unproven(bundle, choice)
    _warn_if_not_native(bundle, choice, options)
    if poor := poor_quality(bundle.manifest.measured_bleu()):
        event(logger, logging.WARNING, poor, model=bundle.label)
    options.on_phase("checksums")
    run_at_low_priority(bundle.verify, options.low_priority)
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
        cuda_graphs=options.cuda_graphs,
    )
    choice, runner = _load(load, bundle, choice, options)
    options.on_phase("checks")
    check_bundle(bundle, choice.precision, runner)
    if options.golden:
        options.on_phase("golden_sentences")
        check = partial(check_golden, bundle, runner, choice.precision, workers=engines)
        run_at_low_priority(check, options.low_priority)
    options.on_phase("warm_up")
    faulty = FaultyRunner(runner, options.failpoints) if options.failpoints else runner
    engine = Engine(faulty, options.limits, options.observer, workers=engines)
    if options.shortlist and runner.shortlist is None:
        raise SettingsError(f"shortlist: {bundle.label} has none for {choice.precision}")
    default = bundle.manifest.defaults.shortlist if options.shortlist is None else options.shortlist
    translator = Translator(
        bundle,
        engine,
        options.limits,
        precision=choice.precision,
        provider=choice.provider,
        graph_bytes=runner.graph_bytes,
        shortlist=default if runner.shortlist else None,
    )
    engine.start()  # last, because a failure above must leave no thread that keeps the model in memory
    return translator


def _engine_count(options: LoadOptions, choice: DeviceChoice) -> int:
    """The engines of a model: as many as the options say, else on the CPU several and on a card one."""
    if options.engines is not None:
        return options.engines
    return default_engines() if choice.provider == CPU else 1


def _load(
    load: Callable[[str], OnnxRunner], bundle: Bundle, choice: DeviceChoice, options: LoadOptions
) -> tuple[DeviceChoice, OnnxRunner]:
    """Load the precision that was chosen, or another one if its graphs are for other native operators than these."""
    try:
        return choice, load(choice.precision)
    except GraphLoadError as error:
        if choice.precision not in NATIVES or options.precision is not None:
            raise
        with suppress(DeviceError):  # there is no other
            choice = choose_device(bundle, options.device, native=False)
        if choice.precision in NATIVES:
            raise
        reason = f"the graphs of the bundle do not fit these native operators; export it again ({error})"
    event(logger, logging.WARNING, _instead_of_native(bundle, choice), model=bundle.label, reason=reason)
    _warn_if_unproven(bundle, choice)
    return choice, load(choice.precision)


def _session_threads(engines: int, threads: int | None) -> tuple[int, int]:
    """Threads of a session while one engine computes, and while all do; threads: cores of an engine."""
    if threads is None:
        threads = threads_per_engine(engines)
    # The calling thread, which is an engine's own, computes along with the pool of the session.
    return engines * threads, 1 + engines * (threads - 1)


def _warn_if_too_many(bundle: Bundle, engines: int, threads: int | None) -> None:
    """Log a warning if the engines have more threads than there are cores: all wait for each other in every step."""
    total, cores = engines * (threads or 1), usable_cores()
    if total > cores:
        message = "more threads than usable cores make loading and decoding slow; lower threads or engines"
        fields = {"engines": engines, "threads_of_each": threads or 1, "usable_cores": cores}
        event(logger, logging.WARNING, message, model=bundle.label, **fields)


def _warn_if_unproven(bundle: Bundle, choice: DeviceChoice) -> None:
    """Log a warning if the export did not verify this precision; neither replies nor metrics would show it."""
    gate = bundle.manifest.precisions[choice.precision].gate
    if gate != PASSED:
        message = "this precision has not passed the gate of its export"
        event(logger, logging.WARNING, message, model=bundle.label, precision=choice.precision, gate=gate)


def _warn_if_not_native(bundle: Bundle, choice: DeviceChoice, options: LoadOptions) -> None:
    """Log a warning if the faster graphs of a bundle are not used, and no setting asks for others."""
    if options.precision is None and (reason := native_left_out(bundle, choice)):
        event(logger, logging.WARNING, _instead_of_native(bundle, choice), model=bundle.label, reason=reason)


def _instead_of_native(bundle: Bundle, choice: DeviceChoice) -> str:
    return f"serves {choice.precision} instead of {preferred_native(bundle)}"


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
