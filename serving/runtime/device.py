"""Which provider and precision serve: what was asked for, or a clear refusal; never a silent move to the CPU."""

from __future__ import annotations

from typing import NamedTuple

from lingon.bundle import Bundle
from lingon.errors import DeviceError
from lingon.serving.runtime import cuda
from lingon.serving.runtime.onnx_runner import CPU, CUDA

PREFERRED = {CPU: ("int8", "fp32"), CUDA: ("fp16",)}


class Choice(NamedTuple):
    """What a model is served on."""

    provider: str
    precision: str


def choose(bundle: Bundle, device: str = "auto", precision: str | None = None) -> Choice:
    """The provider and precision for a device: auto, cpu or cuda.

    auto takes CUDA where its provider, a card and a precision for it are there, else the CPU. Raises DeviceError with
    what is missing and what to do.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise DeviceError(f"device must be auto, cpu or cuda, got {device!r}")
    missing = _why_not_cuda(bundle)
    if device == "cuda" and missing:
        raise DeviceError(f"device cuda: {missing}")
    provider = CUDA if device == "cuda" or (device == "auto" and not missing and precision in (None, "fp16")) else CPU
    fitting = [name for name, entry in bundle.manifest.precisions.items() if entry.provider == provider]
    if precision is None:
        ranked = [name for name in PREFERRED[provider] if name in fitting] or fitting
        if not ranked:
            raise DeviceError(f"{bundle.label} has no precision for {provider}; it has {_list(bundle)}")
        return Choice(provider, ranked[0])
    if precision not in fitting:
        raise DeviceError(f"{bundle.label} has no {precision} for {provider}; it has {_list(bundle)}")
    return Choice(provider, precision)


def _why_not_cuda(bundle: Bundle) -> str | None:
    if missing := cuda.why_not():
        return missing
    if not any(entry.provider == CUDA for entry in bundle.manifest.precisions.values()):
        return f"{bundle.label} has no precision for it; export one with --precision fp32,fp16"
    return None


def _list(bundle: Bundle) -> str:
    return ", ".join(f"{name} ({entry.provider})" for name, entry in bundle.manifest.precisions.items())
