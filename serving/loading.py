"""From a bundle on disk to a model that translates; the server and the in-process translator start here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lingon.bundle import Bundle, is_bundle, open_bundle
from lingon.errors import BundleError
from serving.device import choose
from serving.engine import Engine
from serving.observer import Observer
from serving.onnx_runner import load_runner
from serving.scheduler import EngineLimits
from serving.translator import Translator


def bundles(paths: Iterable[Path]) -> list[Bundle]:
    """The bundles at paths: each a bundle, the folder of a model's versions, or a folder of such folders."""
    return [open_bundle(folder) for path in paths for folder in _folders(path)]


def load_translator(
    bundle: Bundle,
    *,
    device: str,
    precision: str | None,
    threads: int,
    limits: EngineLimits,
    observer: Observer | None = None,
) -> Translator:
    """The model of a bundle, every byte of it verified, warmed up and ready."""
    choice = choose(bundle, device, precision)
    bundle.verify()
    engine = Engine(load_runner(bundle, choice.precision, threads), limits, observer)
    engine.start()
    return Translator(bundle, engine, limits, precision=choice.precision, provider=choice.provider)


def _folders(path: Path) -> list[Path]:
    if is_bundle(path) or not path.is_dir():
        return [path]
    found = sorted(child for child in path.iterdir() if child.is_dir() and is_bundle(child))
    if not found:
        raise BundleError(
            f"{path}: no bundle is here or one folder below; make one with: lingon export CHECKPOINT {path}/NAME"
        )
    return found
