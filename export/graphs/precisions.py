"""The precisions of a bundle: their arithmetic, their provider, and how their graphs are built."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lingon.bundle import names
from lingon.bundle.manifest import NO_ALIGNMENT, Alignment, State
from lingon.bundle.store import FileContent
from lingon.errors import CheckpointError, SettingsError
from lingon.export.graphs.card import CardTransformerGraphs, operators_lack
from lingon.export.graphs.native import NativeRecurrentGraphs, NativeTransformerGraphs
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.quantisation import Calibration, SentenceIds, emulate, narrow_states, with_own_modules
from lingon.export.graphs.recurrent import RecurrentGraphs, RecurrentModel, system_of
from lingon.export.graphs.transformer import TransformerGraphs
from lingon.export.graphs.transformer import states as transformer_states
from lingon.serving.runtime.device import CPU, CUDA, FP16_NATIVE, FP32_NATIVE, FP32_ON_CUDA, NATIVE
from lingon.training.checkpoint import Checkpoint
from lingon.training.models.interface import AnyModel
from lingon.training.models.transformer import Transformer


@dataclass(frozen=True, slots=True)
class PrecisionKind:
    """The arithmetic and the provider of a precision.

    dtype: type of the arithmetic, and of matrix products unless they are quantised
    quantised: whether matrix products are in 8-bit integers
    native: whether the graphs have our own operators. See kernels/
    """

    dtype: type[np.floating[Any]]
    provider: str
    quantised: bool = False
    native: bool = False

    @property
    def on_device(self) -> bool:
        """Whether the provider has memory of its own."""
        return self.provider != CPU

    @property
    def scattered(self) -> bool:
        """Whether decoder steps use ScatteredAttention: CUDA has no GroupQueryAttention in float32."""
        return self.provider == CUDA and self.dtype == np.float32


MAX_FP16 = float(np.finfo(np.float16).max)

PRECISION_KINDS = {
    "fp32": PrecisionKind(np.float32, CPU),
    FP32_ON_CUDA: PrecisionKind(np.float32, CUDA),
    "fp16": PrecisionKind(np.float16, CUDA),
    "int8": PrecisionKind(np.float32, CPU, quantised=True),
    NATIVE: PrecisionKind(np.float32, CPU, quantised=True, native=True),
    FP32_NATIVE: PrecisionKind(np.float32, CPU, native=True),
    FP16_NATIVE: PrecisionKind(np.float16, CUDA, native=True),
}

DEFAULT_PRECISIONS = tuple(name for name in PRECISION_KINDS if name != FP16_NATIVE)
"""The precisions that an export writes if none is named. No card has measured the other one."""

STAND_INS = {FP16_NATIVE: "fp16"}
"""By precision, the one whose graphs take its place: on a machine that cannot run it, and in its gate there. It has the
same weights and the same arithmetic up to rounding. A bundle with the first has the second."""


Emulation = Callable[[], AnyModel]


@dataclass(frozen=True, slots=True)
class BuiltGraphs:
    """The graphs of one precision by their paths in the bundle, and the weight files that they read.

    emulation: returns a model that computes what 8-bit graphs compute, or None for other graphs. It is as large as the
        checkpoint
    """

    graphs: dict[str, bytes]
    reads: tuple[str, ...]
    emulation: Emulation | None = None


def check_heads(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError if the heads have a width that GroupQueryAttention does not take."""
    try:
        checkpoint.model.settings.check_export()
    except SettingsError as error:
        raise CheckpointError(f"{checkpoint.folder}: {error}") from None


def states_of(model: AnyModel) -> tuple[State, ...]:
    """Return the states that the decoder of a model reads at every step."""
    if isinstance(model, Transformer):
        return transformer_states(model)
    assert isinstance(model, RecurrentModel)
    return system_of(model).states()


def precisions_of(model: AnyModel) -> tuple[str, ...]:
    """Return the precisions in which a model can be exported."""
    if not isinstance(model, Transformer):
        return tuple(name for name, kind in PRECISION_KINDS.items() if not kind.on_device)
    excluded = {FP16_NATIVE} if operators_lack(model.settings) else set[str]()
    return tuple(name for name in PRECISION_KINDS if name not in excluded)


def check_weights(checkpoint: Checkpoint, precisions: Sequence[str]) -> None:
    """Raise CheckpointError if a weight is not finite, or beyond the range of a precision."""
    half = "fp16" in precisions
    for name, tensor in checkpoint.model.state_dict().items():
        low, high = tensor.aminmax()  # NaN if one value is NaN. The magnitudes would take as much memory as a table
        largest = float(torch.maximum(-low, high))
        if not largest < math.inf:
            raise CheckpointError(f"{checkpoint.folder}: {name} is not finite: its largest magnitude is {largest}")
        if half and largest > MAX_FP16:
            raise CheckpointError(
                f"{checkpoint.folder}: {name} has magnitudes up to {largest:,.0f}, fp16 holds at most {MAX_FP16:,.0f}; "
                f"export without fp16: --precision fp32,int8"
            )


def build(
    model: AnyModel,
    precision: str,
    weights: WeightFiles,
    calibration: Sequence[SentenceIds] | Calibration,
    *,
    shortlist: bool,
    alignment: Alignment = NO_ALIGNMENT,
) -> BuiltGraphs:
    """Build the graphs of one precision and add their weights to `weights`.

    calibration: sentences on which the ranges of 8-bit activations are measured. Builds of several precisions with one
        Calibration measure once
    shortlist: whether to build the graphs for decoding with a shortlist. Only the CPU provider has them
    alignment: the heads whose mean weights a decoder step outputs, in graphs for the CPU
    """
    kind = PRECISION_KINDS[precision]
    if not isinstance(calibration, Calibration):
        calibration = Calibration(calibration)
    if kind.quantised and calibration.is_empty:
        raise SettingsError(f"{precision} needs sentences to measure activation ranges on, got none")
    assert precision in precisions_of(model), f"{precision} graphs of {type(model).__name__}"
    graphs: TransformerGraphs | RecurrentGraphs
    if isinstance(model, Transformer):
        graphs, emulation = _transformer_graphs(model, kind, weights, calibration, alignment)
    else:
        graphs, emulation = _recurrent_graphs(model, kind, weights, calibration, alignment)
    files = graphs.files(shortlist=shortlist and not kind.on_device)
    paths = {f"{precision}/{name}": content for name, content in files.items()}
    return BuiltGraphs(paths, tuple(sorted(graphs.reads)), emulation)


def _transformer_graphs(
    model: Transformer, kind: PrecisionKind, weights: WeightFiles, calibration: Calibration, alignment: Alignment
) -> tuple[TransformerGraphs, Emulation | None]:
    """Return the builder of the graphs, and for 8-bit graphs what returns the model that they compute."""
    built, ranges = calibration.smoothed(model) if kind.quantised else (model, None)
    if kind.native and kind.on_device:
        return CardTransformerGraphs(built, kind.dtype, weights), None
    if kind.native:
        native = NativeTransformerGraphs(built, kind.dtype, weights, alignment=alignment, quantised=kind.quantised)
        narrowed = {"memory": native.narrows_memory, "past": native.narrows_past}
        if not kind.quantised:
            return native, None
        return native, lambda: narrow_states(emulate(calibration.smoothed(model).model, None), **narrowed)
    graphs = TransformerGraphs(
        built, kind.dtype, weights, ranges, device_states=kind.on_device, scattered=kind.scattered, alignment=alignment
    )
    return graphs, None if ranges is None else lambda: emulate(*calibration.smoothed(model))


def _recurrent_graphs(
    model: AnyModel, kind: PrecisionKind, weights: WeightFiles, calibration: Calibration, alignment: Alignment
) -> tuple[RecurrentGraphs, Emulation | None]:
    """See _transformer_graphs. States between -1 and 1 need no smoothing."""
    assert isinstance(model, RecurrentModel)
    system = system_of(model)
    ranges = calibration.ranges(system.model) if kind.quantised and not kind.native else None
    emulation = (lambda: emulate(with_own_modules(system.model), ranges)) if kind.quantised else None
    if kind.native:
        return NativeRecurrentGraphs(system, weights, alignment=alignment, quantised=kind.quantised), emulation
    return RecurrentGraphs(system, weights, ranges, alignment), emulation


def weight_files(weights: WeightFiles) -> dict[str, FileContent]:
    """Return the weight files by their paths in the bundle."""
    return {f"{names.WEIGHTS}/{name}": content for name, content in weights.contents().items()}
