"""fxtranslate beside an imported student of Firefox: the tokens that it generates from ids.

fxtranslate (0.5) is the engine of Mozilla in Rust, which shares no code with Marian. It computes students alone: SSRU,
norms after the layers, ReLU, tied output, greedy search, all products in 8-bit integers. It reads the 8-bit matrices of
a file and the scales of their inputs, and adds up products of integers. The model that it is compared with computes the
same: the imported weights, with inputs that are rounded by the scales of the file. So tokens are the same, except for
a few: where a number lies at the edge between two integers, the order of a sum decides which one it becomes.

On a processor of x86-64 its kernel for AVX2 adds two neighbouring products in 16 bits, which saturates where both
weights are large. That is computed too, because a random model saturates in every sentence.

It is given ids as words, so that nothing depends on how texts are cut: its own reader of sentencepiece knows no
normalisation. Shortlists, beams and alignments are not compared.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lingon.errors import SourceModelError
from lingon.export.gates_text import BeamSettings
from lingon.importers.foreign_model import ForeignModel
from lingon.importers.readers.marian import ALPHA, BIAS, LARGEST, TABLE, TABLES
from lingon.importers.readers.marian_files import (
    integer_scales,
    model_file,
    open_model,
    read_decoder_options,
    with_values,
)
from lingon.importers.toolkits.comparison import NEVER, compare_tokens, never_generated, spelled_by_ids
from lingon.text import EOS, UNK
from lingon.training.checkpoint import Checkpoint
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.interface import AnyModel
from lingon.training.search import Hypothesis, SearchSettings

TOOLKIT = "fxtranslate"
SEARCHES: tuple[BeamSettings, ...] = ((1, 0.0),)
SENTENCES = 20  # that are compared: a student of 32,000 pieces takes half a second of a core each
LENGTH_EXTRA = 4  # tokens of its bound of a translation, beyond twice the source
NEAR_TIE = 0.05  # of log-probabilities: an input that is rounded to the next integer moved some by 0.015
LONGEST = 256  # tokens of a translation, the end counted
SATURATING = {"avx2": 32}
"""By the name of its kernel, the number that the inputs of a product must be a multiple of: others do not saturate."""

SMALLEST_SUM = -(2**15)
LARGEST_SUM = 2**15 - 1
LARGEST_SHIFTED = 2 * LARGEST  # inputs are from -127 to 127, and shifted to 0 to 254
OUTPUT_ALPHAS = ("none", TABLES["target"])  # the first that a file has is taken


def is_installed() -> bool:
    """Return whether fxtranslate can be imported."""
    return importlib.util.find_spec("fxtranslate") is not None


def difference(source: ForeignModel) -> str:
    """Return in what a model differs from those that fxtranslate computes, or "" for one of them."""
    settings = source.settings
    found = (
        (settings.decoder_cell != "ssru", "a decoder without SSRU cells"),
        (settings.norm != "post", "norms before its layers"),
        (settings.final_norm or settings.embedding_norm, "norms outside of its layers"),
        (settings.activation != "relu", f"the activation {settings.activation}"),
        (settings.positions != "sinusoidal", "learned positions"),
        (settings.tie == "none", "an output matrix of its own"),
        (source.ranges is None, "no 8-bit matrices with the scales of their inputs"),
    )
    return next((what for differs, what in found if differs), "")


@dataclass(frozen=True, slots=True)
class SaturatingPairs:
    """The neighbouring weights of a product whose sum of two products can leave 16 bits; others cannot.

    rows: of the output, (pairs)
    columns: of the input, (pairs, 2)
    weights: (pairs, 2), whole numbers
    """

    rows: Tensor
    columns: Tensor
    weights: Tensor

    @classmethod
    def of(cls, integers: Tensor) -> SaturatingPairs:
        """integers: (outputs, inputs), whole numbers."""
        pairs = integers.reshape(len(integers), -1, 2)
        largest = LARGEST_SHIFTED * pairs.clamp(min=0).sum(2)
        smallest = LARGEST_SHIFTED * pairs.clamp(max=0).sum(2)
        rows, places = ((largest > LARGEST_SUM) | (smallest < SMALLEST_SUM)).nonzero(as_tuple=True)
        return cls(rows, torch.stack([2 * places, 2 * places + 1], 1), pairs[rows, places])

    def lost(self, inputs: Tensor, outputs: int) -> Tensor:
        """Return what saturation takes from the sums (..., outputs) of products with inputs of -127 to 127."""
        sums = ((inputs + LARGEST)[..., self.columns] * self.weights).sum(-1)
        excess = sums - sums.clamp(SMALLEST_SUM, LARGEST_SUM)
        return inputs.new_zeros(*inputs.shape[:-1], outputs).index_add_(-1, self.rows, excess)


class IntegerProduct(nn.Module):
    """A product of 8-bit integers: weights of a file with inputs that are rounded by its scale.

    The sums are whole numbers. In float32 they are exact up to 2 ** 24, which a thousand inputs hardly reach.
    """

    def __init__(self, weight: Tensor, scale: float, alpha: float, *, saturates: bool) -> None:
        """weight: (outputs, inputs), whole numbers divided by `scale`; alpha: of the inputs."""
        super().__init__()
        self._integers = (weight.detach() * scale).round()
        self._alpha, self._unit = alpha, 1.0 / (alpha * scale)
        self._pairs = SaturatingPairs.of(self._integers) if saturates else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the product (..., outputs) without its bias."""
        rounded = (inputs * self._alpha).round().clamp(-LARGEST, LARGEST)
        sums = functional.linear(rounded, self._integers)
        if self._pairs is not None:
            sums = sums - self._pairs.lost(rounded, len(self._integers))
        return sums * self._unit


class IntegerLinear(nn.Module):
    """Several products of the same input, and their bias, in the place of a linear layer."""

    bias: Tensor | None

    def __init__(self, linear: nn.Linear, products: Sequence[IntegerProduct]) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self._products = nn.ModuleList(products)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the linear layer would return."""
        found = torch.cat([product(inputs) for product in self._products], -1)
        return found if self.bias is None else found + self.bias


def in_integers(model: AnyModel, settings: TransformerSettings, path: Path, width: int | None) -> AnyModel:
    """Return a model with the same weights, whose products are those of integers.

    path: of the file with the scales
    width: that the inputs of a product must be a multiple of to saturate; None: no product saturates
    """
    scales, alphas = integer_scales(path), _alphas(path)
    found = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
    for name, matrices in products_of(settings).items():
        linear = found.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        saturates = width is not None and linear.in_features % width == 0
        parts = linear.weight.chunk(len(matrices))
        products = [
            IntegerProduct(part, _first(path, scales, (matrix,)), _alpha(path, alphas, matrix), saturates=saturates)
            for part, matrix in zip(parts, (_table(scales) if each == "" else each for each in matrices), strict=True)
        ]
        parent, _, own = name.rpartition(".")
        setattr(found.get_submodule(parent), own, IntegerLinear(linear, products))
    return found


def products_of(settings: TransformerSettings) -> dict[str, tuple[str, ...]]:
    """Return the matrices of Marian that each linear layer packs, in their order; "" is the table of target pieces."""
    found: dict[str, tuple[str, ...]] = {"output": ("",)}
    for side, layers in (("encoder", settings.encoder_layers), ("decoder", settings.decoder_layers)):
        for number in range(layers):
            ours, theirs = f"{side}.{number}", f"{side}_l{number + 1}"
            if side == "encoder":
                found[f"{ours}.attention.qkv"] = tuple(f"{theirs}_self_W{part}" for part in "qkv")
                found[f"{ours}.attention.output"] = (f"{theirs}_self_Wo",)
            else:
                found[f"{ours}.attention.gates"] = (f"{theirs}_rnn_Wf", f"{theirs}_rnn_W")
                found[f"{ours}.cross.query"] = (f"{theirs}_context_Wq",)
                found[f"{ours}.cross.key_value"] = tuple(f"{theirs}_context_W{part}" for part in "kv")
                found[f"{ours}.cross.output"] = (f"{theirs}_context_Wo",)
            found[f"{ours}.feed_forward.inner"] = (f"{theirs}_ffn_W1",)
            found[f"{ours}.feed_forward.outer"] = (f"{theirs}_ffn_W2",)
    return found


def _alphas(path: Path) -> dict[str, float]:
    """Return the scales of inputs by the names of their matrices, without empty ones."""
    tensors, _ = open_model(path)
    stored = ((name.removesuffix(ALPHA), tensor) for name, tensor in tensors.stored() if name.endswith(ALPHA))
    return {name: float(tensor.flatten()[0]) for name, tensor in stored if tensor.numel()}


def _table(scales: dict[str, float]) -> str:
    return TABLE if TABLE in scales else TABLES["target"]


def _alpha(path: Path, alphas: dict[str, float], matrix: str) -> float:
    return _first(path, alphas, OUTPUT_ALPHAS if matrix in (TABLE, TABLES["target"]) else (matrix,))


def _first(path: Path, values: dict[str, float], names: Sequence[str]) -> float:
    found = next((values[name] for name in names if name in values), None)
    if found is None:
        raise SourceModelError(f"{path}: {' or '.join(names)} has no scale of 8-bit integers, which fxtranslate needs")
    return found


class FxTranslateToolkit:
    """A student as fxtranslate loads it, with vocabularies that read and write ids, and without a shortlist.

    kernel: the name of its kernel for products
    """

    length_extra, near_tie = LENGTH_EXTRA, NEAR_TIE

    def __init__(self, path: Path, source: ForeignModel) -> None:
        """path: of the model, NAME.bin or NAME.bin.gz. Raises SourceModelError if fxtranslate refuses it."""
        import fxtranslate

        never = [row for row in never_generated(source.target) if row < max(source.target.rows)]
        content = with_values(path, BIAS, never, NEVER)
        pieces = [spelled_by_ids(each) for each in (source.source, source.target)]
        try:
            self._translator: Any = fxtranslate.Translator(content, *pieces)
        except ValueError as error:
            raise SourceModelError(f"{path}: fxtranslate cannot load it: {str(error).partition(chr(10))[0]}") from None
        self.kernel = str(self._translator.backend())
        self.name = f"{TOOLKIT} in int8 ({self.kernel})"
        self._end = source.source.rows[EOS]

    def searches(self, forced: Sequence[int]) -> Sequence[BeamSettings]:
        """Return greedy search, its only one."""
        return SEARCHES

    def is_comparable(self, source: Sequence[int], ours: Hypothesis, settings: SearchSettings) -> bool:
        """Return whether a source can be spelled, and a translation is within its bound."""
        bound = settings.length_factor * len(source) + settings.length_extra
        return UNK not in source and (bound <= LONGEST or (ours.finished and len(ours.tokens) < LONGEST))

    def generate(
        self,
        source: Sequence[int],
        never: Sequence[int],
        settings: SearchSettings,
        most: int,
        forced: Sequence[int] = (),
    ) -> list[int]:
        """Return the generated ids. Those of `never` have a bias against them in the model that it loads."""
        assert not forced
        text = self._translator.translate(" ".join(str(row) for row in source if row != self._end))
        return [int(each) for each in text.split()][:most]


def compare(checkpoint: Checkpoint, source: ForeignModel, folder: Path, texts: Sequence[str]) -> Iterator[str]:
    """Compare tokens with those of fxtranslate, and yield a line. Raises ParityError.

    A model of another form is not compared, and a line says so.
    """
    if what := difference(source):
        yield f"not confirmed by {TOOLKIT}: the model has {what}"
        return
    path = model_file(folder, read_decoder_options(folder))
    toolkit = FxTranslateToolkit(path, source)
    model = in_integers(checkpoint.model, source.settings, path, SATURATING.get(toolkit.kernel))
    yield from compare_tokens(toolkit, replace(checkpoint, model=model), source, texts[:SENTENCES])
