"""From a bundle on disk to a model that translates; the server and the in-process translator start here."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from lingon.bundle import PASSED, Bundle, is_bundle, open_bundle
from lingon.errors import BundleError, SettingsError
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.observer import Observer
from lingon.serving.models.golden import check_golden
from lingon.serving.observability.logs import event
from lingon.serving.runtime.device import CPU, DeviceChoice, choose_device
from lingon.serving.runtime.failpoints import Failpoints, FaultyRunner
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.serving.runtime.validation import check_bundle
from lingon.serving.system.cpu import default_engines, threads_per_engine
from lingon.serving.system.threads import run_at_low_priority
from lingon.serving.translation.translator import Translator

logger = logging.getLogger(__name__)


def bundles(paths: Iterable[Path]) -> list[Bundle]:
    """The bundles at paths: each a bundle, the folder of a model's versions, or a folder of such folders."""
    return [open_bundle(folder) for path in paths for folder in _folders(path)]


def load_translator(
    bundle: Bundle,
    *,
    device: str,
    precision: str | None,
    engines: int | None = None,
    threads: int | None = None,
    limits: EngineLimits,
    shortlist: bool | None = None,
    observer: Observer | None = None,
    faults: Failpoints | None = None,
    golden: bool = False,
    beside: bool = False,
) -> Translator:
    """The model of a bundle, every byte of it verified, warmed up and ready.

    engines: running batches side by side; without it several on the CPU, one on a card
    threads: cores that each of them computes on, while the others do too; without it they share what there is
    shortlist: whether one is used where a request does not say; None is as the bundle says
    faults: what goes wrong on purpose
    golden: whether it is proven first that it translates here as at its export, or nearly so on a card
    beside: whether others are served meanwhile, who come first
    Raises SettingsError where one is to be used and there is none.
    """
    choice = choose_device(bundle, device, precision)
    _warn(bundle, choice)
    run_at_low_priority(bundle.verify, beside)
    if engines is None:
        engines = default_engines() if choice.provider == CPU else 1
    alone, apart = _threads(engines, threads)
    runner = load_runner(bundle, choice.precision, threads=alone, shared_threads=apart, low_priority=beside)
    check_bundle(bundle, choice.precision, runner)
    if golden:
        run_at_low_priority(partial(check_golden, bundle, runner, choice.precision, workers=engines), beside)
    engine = Engine(FaultyRunner(runner, faults) if faults else runner, limits, observer, workers=engines)
    if shortlist and runner.shortlist is None:
        raise SettingsError(f"shortlist: {bundle.label} has none for {choice.precision}")
    default = bundle.manifest.defaults.shortlist if shortlist is None else shortlist
    translator = Translator(
        bundle,
        engine,
        limits,
        precision=choice.precision,
        provider=choice.provider,
        graph_bytes=runner.graph_bytes,
        shortlist=default if runner.shortlist else None,
    )
    engine.start()  # last: where anything else fails, no thread is left that would keep the model
    return translator


def _threads(engines: int, each: int | None) -> tuple[int, int]:
    """Threads of a session while one engine computes, and while all do; each: cores of an engine."""
    if each is None:
        each = threads_per_engine(engines)
    # A session's threads are those of its pool and the one that calls: every engine's own.
    return engines * each, 1 + engines * (each - 1)


def _warn(bundle: Bundle, choice: DeviceChoice) -> None:
    """Tell whoever runs this that nobody has proven what is about to serve, which no request and no metric would."""
    gate = bundle.manifest.precisions[choice.precision].gate
    if gate != PASSED:
        told = "this precision has not passed the gate of its export"
        event(logger, logging.WARNING, told, model=bundle.label, precision=choice.precision, gate=gate)


def _folders(path: Path) -> list[Path]:
    if is_bundle(path) or not path.is_dir():
        return [path]
    found = sorted(child for child in path.iterdir() if child.is_dir() and is_bundle(child))
    if not found:
        raise BundleError(
            f"{path}: no bundle is here or one folder below; make one with: lingon export CHECKPOINT {path}/NAME"
        )
    return found
