"""The gates that compare the graphs with the checkpoint: tensors and attention on a grid of shapes, tokens of text."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import FileIO
from itertools import accumulate
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lingon.alignment import AttentionKind
from lingon.bundle import names
from lingon.bundle.manifest import Limits
from lingon.errors import BundleError, ParityError
from lingon.export.differences import LOG_PROBS, Differences, Tolerance, finite, log_softmax
from lingon.export.gates_text import NEAR_TIE, SEARCHED_ROWS, engine_search, max_near_ties
from lingon.export.graphs.layers import embedding_of
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.runtime.onnx_runner import ATTENTION, OnnxRunner
from lingon.serving.runtime.runner import BatchShape, Runner, matrix_shape, width_for
from lingon.text import BOS, EOS, UNK, Tokenizer
from lingon.training.batches import pad
from lingon.training.models.attention import SelfAttention
from lingon.training.models.interface import FORBIDDEN_LOGIT, AnyModel, AttentionModel
from lingon.training.search import Hypothesis as ReferenceHypothesis
from lingon.training.search import PairIds, SearchSettings, translate

# What the checkpoint computes on a grid of shapes.

ROWS, SOURCES, PASTS = (1, 2, 5), (1, 7, 16, 33), (0, 1, 6)
GridRow = tuple[Sequence[int], Sequence[int]]
"""Ids of a source, as the tokenizer frames it, and of a target, without BOS and EOS."""

LONGEST = 512  # tokens; a model that reads or writes more is compared up to this length
LOG_PROBS_OF_ROW = "log_probs"  # the name of these among kinds of attention
MOST_LOG_PROBS = 2**24  # of one row; a target is shorter than LONGEST where the vocabulary is larger than 32,768


@dataclass(frozen=True, slots=True)
class GateCase:
    """Random sources (ids, EOS last) and random targets of the lengths of the pasts (ids, without BOS and EOS)."""

    sources: list[list[int]]
    targets: list[list[int]]

    @classmethod
    def draw(cls, random: np.random.Generator, model: AnyModel, rows: int, longest: int, past: int) -> GateCase:
        """Draw a case: the first row has `longest` source tokens and `past` target tokens, the others at most these."""
        source_vocab, target_vocab = (embedding_of(model, side).num_embeddings for side in ("source", "target"))

        def ids(length: int, vocab: int) -> list[int]:
            return list(random.integers(UNK + 1, vocab, length).tolist())

        lengths = [longest, *random.integers(min(2, longest), longest + 1, rows - 1)]
        pasts = [past, *random.integers(0, past + 1, rows - 1)]
        return cls(
            [[*ids(int(length) - 1, source_vocab), EOS] for length in lengths],
            [ids(int(length), target_vocab) for length in pasts],
        )

    @property
    def source_lengths(self) -> np.ndarray:
        """The tokens of each source (rows)."""
        return np.array([len(source) for source in self.sources])

    @property
    def target_lengths(self) -> np.ndarray:
        """The tokens of each target (rows)."""
        return np.array([len(target) for target in self.targets])


@dataclass(frozen=True, slots=True)
class Expected:
    """What the checkpoint computes for one row of a case, without the other rows.

    log_probs: (target_length + 1, vocab)
    attention: weights (layers, heads, queries, keys) of the attention that the model has: `cross`, and the
        self-attention of `encoder` and `decoder`. A target begins with BOS
    """

    log_probs: np.ndarray
    attention: dict[str, np.ndarray]


class StoredRows:
    """What the checkpoint computes for rows, in a temporary file without a name: with a large vocabulary it is larger
    than the checkpoint.
    """

    def __init__(self, folder: Path | None) -> None:
        """folder: of the file. None is the folder of temporary files."""
        self._file = TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115, it is closed when this object goes
        weakref.finalize(self, self._file.close)
        self._rows: dict[int, dict[str, tuple[int, tuple[int, ...]]]] = {}  # offset in bytes and shape, by name

    def __getitem__(self, row: int) -> Expected:
        """Return a row, whose values are mapped into memory."""
        found: dict[str, np.ndarray] = {
            name: np.memmap(self._file, np.float32, "r", offset, shape)
            for name, (offset, shape) in self._rows[row].items()
        }
        return Expected(found.pop(LOG_PROBS_OF_ROW), found)

    def add(self, row: int, expected: Expected) -> None:
        """Write a row. Raises BundleError if the disk is full."""
        places = self._rows[row] = {}
        for name, values in ((LOG_PROBS_OF_ROW, expected.log_probs), *expected.attention.items()):
            assert values.dtype == np.float32, f"{name} is {values.dtype}"
            places[name] = _appended(self._file, values), values.shape


def map_weights(model: nn.Module, folder: Path | None) -> None:
    """Move the weights of a model into a temporary file without a name, of which they are mapped into memory.

    The system takes their memory for the graphs, and reads them again when a gate needs them. Values, and which weights
    are shared, stay. Raises BundleError if the disk is full; the model is as it was then.

    folder: of the file. None is the folder of temporary files
    """
    weights = list(model.parameters())
    with TemporaryFile(dir=folder, buffering=0) as file:
        offsets = [_appended(file, each.detach().numpy()) for each in weights]
        content = mmap(file.fileno(), 0, access=ACCESS_COPY)
    for weight, offset in zip(weights, offsets, strict=True):
        values = torch.frombuffer(content, dtype=weight.dtype, count=weight.numel(), offset=offset)
        weight.data = values.view(weight.shape)


CACHE_LINE = 64  # bytes; where each array begins


def _appended(file: FileIO, values: np.ndarray) -> int:
    """Write an array to the end of a temporary file, and return where it begins. Raises BundleError."""
    content = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
    try:
        begin = file.seek(-file.seek(0, os.SEEK_END) % CACHE_LINE, os.SEEK_END)
        while content:  # a call writes at most 2 GiB
            content = content[file.write(content) :]
    except OSError as error:
        raise BundleError(f"the gates cannot write a temporary file ({error.strerror or error})") from None
    return begin


@dataclass(frozen=True, slots=True)
class CaseReference:
    """A case, and what the checkpoint computes for each of its rows.

    stored: of all cases
    first: the number of the first row there
    """

    case: GateCase
    stored: StoredRows
    first: int

    @property
    def rows(self) -> list[Expected]:
        """What the checkpoint computes for each row, mapped into memory."""
        return [self.stored[self.first + row] for row in range(len(self.case.sources))]


def draw_grid(
    model: AnyModel, limits: Limits, *, attention: bool = True, folder: Path | None = None
) -> list[CaseReference]:
    """Return cases with every combination of rows, source length and target length, and the longest source and target.

    Lengths are ragged, so that most cases have padding.

    attention: whether the weights of attention are wanted. Without them there is less to compute
    folder: of the temporary file that has what is computed. None is the folder of temporary files
    """
    random, longest = np.random.default_rng(0), min(limits.max_source_tokens, LONGEST)
    sources = sorted({min(length, longest) for length in SOURCES})
    shapes = [(rows, source, past) for rows in ROWS for source in sources for past in PASTS]
    most = MOST_LOG_PROBS // embedding_of(model, "target").num_embeddings
    shapes.append((2, longest, min(limits.max_target_tokens, LONGEST, max(most, max(PASTS) + 1)) - 1))
    cases = [GateCase.draw(random, model, *shape) for shape in shapes]
    rows = [row for case in cases for row in zip(case.sources, case.targets, strict=True)]
    stored = _stored(model, rows, StoredRows(folder), attention=attention)
    firsts = accumulate((len(case.sources) for case in cases), initial=0)
    return [CaseReference(case, stored, first) for case, first in zip(cases, firsts, strict=False)]


def expected_log_probs(model: AnyModel, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """Return the checkpoint's log-probabilities (target_length + 1, vocab) of a target (without BOS and EOS)."""
    (row,) = _expected_together(model, [(source, target)], attention=False)
    return row.log_probs


def _log_probs(model: AnyModel, logits: Tensor) -> np.ndarray:
    return finite(model.log_probs(logits).numpy(), "the checkpoint's log-probabilities")


def _stored(model: AnyModel, rows: Sequence[GridRow], stored: StoredRows, *, attention: bool) -> StoredRows:
    """Compute and store each row.

    Rows of equal lengths run together, which needs no padding: a run of few tokens mostly reads the weights.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for index, (source, target) in enumerate(rows):
        groups.setdefault((len(source), len(target)), []).append(index)
    for same in groups.values():
        found = _expected_together(model, [rows[index] for index in same], attention=attention)
        for index, each in zip(same, found, strict=True):
            stored.add(index, each)
    return stored


@torch.inference_mode()
def _expected_together(model: AnyModel, rows: Sequence[GridRow], *, attention: bool) -> list[Expected]:
    """Return what one forward pass computes for rows of equal lengths: logits, and the weights of cross-attention."""
    source_ids = torch.tensor([source for source, _ in rows])
    lengths = torch.full((len(rows),), source_ids.size(1))
    target_ids = torch.tensor([[BOS, *target] for _, target in rows])
    if not attention:
        return [Expected(row, {}) for row in _log_probs(model, model(source_ids, lengths, target_ids))]
    with _observed_attention(model) as found:
        memory, cross = model.encode(source_ids, lengths), None
        if isinstance(model, AttentionModel):
            logits, cross = model.decode_with_attention(target_ids, memory)
        else:
            logits = model.decode(target_ids, memory)
    weights: dict[str, np.ndarray] = {}  # by kind: (rows, layers, heads, queries, keys)
    for side in ("encoder", "decoder"):
        if layers := [each for name, each in found.items() if name.startswith(f"{side}.")]:
            weights[side] = np.stack(layers, axis=1)
    if cross is not None:
        weights["cross"] = cross.numpy()
    log_probs = _log_probs(model, logits)
    return [Expected(log_probs[row], {kind: each[row] for kind, each in weights.items()}) for row in range(len(rows))]


@contextmanager
def _observed_attention(model: AnyModel) -> Iterator[dict[str, np.ndarray]]:
    """Collect the weights (rows, heads, queries, keys) of each self-attention, by name, while the model computes."""
    found: dict[str, np.ndarray] = {}

    def observe(name: str, module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        assert isinstance(module, SelfAttention)
        query, present = module.project(inputs[0])
        found[name] = module.mix.weights(query, present.key, *inputs[1:], **options).numpy()

    modules = {name: module for name, module in model.named_modules() if isinstance(module, SelfAttention)}
    hooks = [
        module.register_forward_pre_hook(partial(observe, name), with_kwargs=True) for name, module in modules.items()
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


# The tensor gate: steps and scores of the graphs equal those of the checkpoint, over a grid of shapes.

EMULATED = 1e-3  # largest difference of a log-probability from the emulation of 8-bit products, in an exact row
MOST_COST = 1.2  # largest ratio of the mean difference of 8-bit graphs to what their arithmetic costs
EXACT_ROWS = 0.05  # least share of exact rows; it was 0.85 for models/en-de, 0.19 for drawn weights of the base size
MOST_DISTURBED = 1.1
"""Largest mean difference from the emulation where fewer rows are exact, in those of an emulation that is disturbed.

It was 0.63 to 0.85 for 6 and 12 layers a side of width 512 and 1,024, 1.08 to 3 with one matrix 1.2 times too large.
"""


@dataclass(frozen=True, slots=True)
class TensorReport:
    """The number of shapes, and the differences of the log-probabilities of steps and of the scorer.

    exact_rows: the share of rows that are those of the emulation of 8-bit products, None without one
    of_disturbance: the mean difference from the emulation, in those of a disturbed one; None if enough rows are exact
    """

    shapes: int
    step_difference: float
    step_mean: float
    scorer_difference: float
    scorer_mean: float
    exact_rows: float | None = None
    of_disturbance: float | None = None


Compared = tuple[Sequence[Expected], Sequence[Differences]]
"""What is expected of each row of a case, and what its differences are added to."""


def check_tensors(
    runner: Runner,
    precision: str,
    grid: Sequence[CaseReference],
    emulated: Sequence[CaseReference] = (),
    *,
    cost: float | None = None,
    disturbed: Callable[[], Sequence[CaseReference]] | None = None,
) -> TensorReport:
    """Compare steps and scores over a grid of shapes, with ragged lengths and pasts.

    emulated: the same cases of a model that emulates the 8-bit products of the graphs. What the graphs compute is
        compared with both references as it is computed
    cost: what is allowed besides the bounds of the precision, by default that of `emulated`, see `cost_of_emulation`.
        On random text it is large for a model that is very sure on its own. The graphs are then only bound to be as
        good as their arithmetic: the quality gate says whether that suits the model
    disturbed: returns the same cases of the emulating model with errors of rounding, see
        lingon.export.graphs.quantisation.disturb. It is called if too few rows are those of the emulation

    Raises ParityError if values differ too much, if one is not finite, or if too few rows are those of the emulation
    and the others differ from it by more than errors of rounding make.
    """
    steps, scorer, of_emulation, exactly = Differences(), Differences(), list[Differences](), list[Differences]()
    for index, reference in enumerate(grid):
        rows, expected = len(reference.case.sources), reference.rows
        with_steps: list[Compared] = [(expected, [steps] * rows)]
        with_scores: list[Compared] = [(expected, [scorer] * rows)]
        if emulated:
            other = emulated[index].rows, [Differences() for _ in range(rows)]
            with_steps.append(other)
            with_scores.append(other)
            of_emulation += other[1]
            # In a row of one source token every head attends to that token.
            exactly += [each for each, source in zip(other[1], reference.case.sources, strict=True) if len(source) > 1]
        _compare_steps(runner, reference.case, with_steps, precision)
        _compare_scores(runner, reference.case, with_scores, precision)
    runner.free_memory()
    if cost is None:
        cost = cost_of_emulation(grid, emulated) if emulated else 0.0
    tolerance = LOG_PROBS[precision].allowing(MOST_COST * cost)
    steps.check(f"{precision}: log-probabilities of steps", tolerance)
    scorer.check(f"{precision}: log-probabilities of the scorer", tolerance)
    if not emulated:
        return TensorReport(len(grid), steps.largest, steps.mean, scorer.largest, scorer.mean)
    share = sum(each.largest <= EMULATED for each in exactly) / len(exactly)
    ratio = None
    if share < EXACT_ROWS:
        made = cost_of_emulation(emulated, disturbed()) if disturbed is not None else 0.0
        ratio = _of_disturbance(precision, share, of_emulation, made)
    return TensorReport(len(grid), steps.largest, steps.mean, scorer.largest, scorer.mean, share, ratio)


def cost_of_emulation(grid: Sequence[CaseReference], emulated: Sequence[CaseReference]) -> float:
    """Return the mean difference that 8-bit products make to the log-probabilities of a model.

    grid, emulated: the same cases, of the model and of the one that emulates 8-bit products; or of that one, and of it
        with errors of rounding
    """
    found = Differences()
    for exact, other in zip(grid, emulated, strict=True):
        for one, two in zip(exact.rows, other.rows, strict=True):
            found.add(_differences(two.log_probs, one.log_probs))
    return found.mean


def _of_disturbance(precision: str, share: float, found: Sequence[Differences], made: float) -> float:
    """Return the mean difference of 8-bit graphs from the model that emulates them, in those of a disturbed one.

    A value near the middle of two steps may be rounded to either, and then what follows in its row differs. Rows
    without such a value are exact, but a deep and wide model has none. Raises ParityError if the graphs differ by more
    than such values explain: then a scale or a weight is wrong.

    share: of exact rows, which is too small
    found: the differences of the graphs, of each row
    made: mean difference of the disturbed model
    """
    mean = sum(each.total for each in found) / sum(each.count for each in found)
    if mean > MOST_DISTURBED * made:
        raise ParityError(
            f"{precision}: {share:.0%} of the rows have the log-probabilities of 8-bit products within {EMULATED:.0e}, "
            f"less than {EXACT_ROWS:.0%}, and their mean difference is {mean:.1e}, more than the {MOST_DISTURBED:g} "
            f"times {made:.1e} that errors of rounding make"
        )
    return mean / made


def _compare_steps(runner: Runner, case: GateCase, compared: Sequence[Compared], precision: str) -> None:
    """Decode all rows in one batch. Each starts at its own step, so that the pasts have different lengths.

    Every other step also returns logits, which sampling reads.
    """
    rows, longest = len(case.sources), int(case.target_lengths.max())
    encoded = runner.encode(pad(case.sources).numpy(), case.source_lengths)
    buffers = runner.open(BatchShape(rows, 1, width_for(int(case.source_lengths.max())), longest + 1))
    for step in range(longest + 1):
        positions = np.maximum(step - (longest - case.target_lengths), 0)
        for row in np.flatnonzero(positions == 0).tolist():
            buffers.place(row, encoded, row)  # again: a step replaces recurrent states
        buffers.positions[:] = positions
        buffers.token_ids[:] = _tokens_at(case, positions)
        found = buffers.step(rows, logits=step % 2 == 0)
        what = f"a step's log-probabilities in {precision}"
        log_probs = finite(found.candidate_log_probs, what)  # with NaN, the ids are invalid
        for row, position in enumerate(positions):
            whole = None if found.logits is None else log_softmax(finite(found.logits[row], what))
            for expected_rows, differences in compared:
                expected = expected_rows[row].log_probs[position]
                differences[row].add(_differences(log_probs[row], expected[found.candidate_ids[row]]))
                if whole is not None:
                    differences[row].add(_differences(whole[: len(expected)], expected))


def _tokens_at(case: GateCase, positions: np.ndarray) -> list[int]:
    """Return the token that each row reads at its position (rows)."""
    return [[BOS, *target][position] for target, position in zip(case.targets, positions, strict=True)]


def _differences(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the differences of log-probabilities, or none where both say that a piece is never generated."""
    never = np.maximum(found, expected) < FORBIDDEN_LOGIT / 2
    differences: np.ndarray = np.where(never, 0, np.abs(found - expected))
    return differences


def _compare_scores(runner: Runner, case: GateCase, compared: Sequence[Compared], precision: str) -> None:
    sources, targets = _padded(case)
    scored = runner.score(sources, case.source_lengths, targets, case.target_lengths)
    for row, (target, each) in enumerate(zip(case.targets, scored, strict=True)):
        found = finite(each.log_probs, f"the scorer's log-probabilities in {precision}")
        for expected_rows, differences in compared:
            expected = expected_rows[row].log_probs[np.arange(len(target) + 1), [*target, EOS]]
            differences[row].add(_differences(found, expected))


# The attention gate: every attention matrix of the scorer is that of the checkpoint, over a grid of shapes.
# Alignments are made of these matrices. Translations are not: a decoder step computes its own.

MOST_ATTENTION = 32 << 20  # bytes of the weights of a run of several rows
ALIGNMENT = "alignment"  # the mean over the heads of the manifest, as a server computes it
TOLERANCE = {  # largest: of a weight; mean: of the part of its weight that a query gives to other keys, in any head
    "fp32": Tolerance(largest=1e-4),
    "fp32-cuda": Tolerance(largest=1e-4),
    "fp16": Tolerance(largest=2e-2),
    "fp16-native": Tolerance(largest=2e-2),
    "int8": Tolerance(mean=0.1),
    "int8-native": Tolerance(mean=0.1),
    "fp32-native": Tolerance(largest=1e-4),
}


@dataclass(frozen=True, slots=True)
class AttentionReport:
    """The number of shapes and of heads, the largest difference of a weight, and the mean difference of the worst head.

    mean: part of its weight that a query gives to other keys, half the sum of the absolute differences
    """

    shapes: int
    heads: int
    largest: float
    mean: float


@dataclass(slots=True)
class _HeadDifferences:
    """The differences of the weights of one kind of attention, by layer and head."""

    layers: int
    heads: int
    queries: int = 0
    largest: np.ndarray = field(init=False)  # (layers, heads)
    moved: np.ndarray = field(init=False)  # (layers, heads): part of its weight given to other keys, over all queries

    def __post_init__(self) -> None:
        self.largest, self.moved = np.zeros((self.layers, self.heads)), np.zeros((self.layers, self.heads))

    @property
    def mean(self) -> np.ndarray:
        """The part of its weight that a query gives to other keys (layers, heads)."""
        mean: np.ndarray = self.moved / self.queries
        return mean

    def add(self, found: np.ndarray, expected: np.ndarray) -> None:
        """Add the weights (layers, heads, queries, keys) of a row."""
        self.queries += expected.shape[2]
        for layer, (one, other) in enumerate(zip(found, expected, strict=True)):  # all layers would take much memory
            differences = np.abs(one.astype(np.float64) - other)
            self.largest[layer] = np.maximum(self.largest[layer], differences.max(axis=(1, 2)))
            self.moved[layer] += differences.sum(axis=(1, 2)) / 2

    def check(self, what: str, tolerance: Tolerance) -> None:
        """Raise ParityError, which names the worst layer and head, if they differ too much."""
        for values, bound, average in (
            (self.largest, tolerance.largest, ""),
            (self.mean, tolerance.mean, " on average"),
        ):
            if bound is not None and values.max() > bound:
                layer, head = np.unravel_index(values.argmax(), values.shape)
                raise ParityError(
                    f"{what} attention of layer {layer}, head {head} differs by {values.max():.2e}{average}, "
                    f"more than {bound:.0e}"
                )


def check_attention(runner: OnnxRunner, precision: str, grid: Sequence[CaseReference]) -> AttentionReport:
    """Compare the weights softmax(Q K^T / sqrt(head_dim)) of every layer and head, and the alignments made of them.

    Raises ParityError if a head differs too much or gives any weight to padding or to later target tokens.

    grid: of a model with attention
    """
    differences = {kind: _HeadDifferences(*each.shape[:2]) for kind, each in grid[0].rows[0].attention.items()}
    kinds: list[AttentionKind] = [kind for kind in ATTENTION if kind in differences]
    differences[ALIGNMENT] = _HeadDifferences(1, 1)
    for reference in grid:
        rows = reference.rows
        for kind, row, found in _attention(runner, reference.case, kinds):
            what, causal, weights = f"{precision}: {kind}", kind == "decoder", rows[row].attention[kind]
            differences[kind].add(_visible(found, weights, what, causal=causal), weights)
        for found, expected in zip(_alignments(runner, reference.case), rows, strict=True):
            differences[ALIGNMENT].add(found[None, None], _alignment(runner, expected))
    runner.free_memory()
    for name, each in differences.items():
        each.check(f"{precision}: {name}", TOLERANCE[precision])
    return AttentionReport(
        len(grid),
        sum(each.largest.size for kind, each in differences.items() if kind != ALIGNMENT),
        max(float(each.largest.max()) for each in differences.values()),
        max(float(each.mean.max()) for each in differences.values()),
    )


def _attention(
    runner: OnnxRunner, case: GateCase, kinds: Sequence[AttentionKind]
) -> Iterator[tuple[AttentionKind, int, np.ndarray]]:
    """Yield the weights (layers, heads, queries, keys, both padded) of each kind and row, with kind and row.

    The rows of a case with more than MOST_ATTENTION run one by one, as padded as they are together.
    """
    sources, targets = _padded(case)
    begun = np.concatenate([np.full((len(targets), 1), BOS), targets], axis=1)
    feed = {
        names.SOURCE_IDS: sources,
        names.SOURCE_LENGTHS: case.source_lengths,
        names.TARGET_IDS: begun,
        names.LABELS: begun,  # any; the attention does not depend on them
    }
    row_bytes = sum(_row_bytes(runner, kind, sources.shape[1], begun.shape[1]) for kind in kinds)
    together = len(sources) if len(sources) * row_bytes <= MOST_ATTENTION else 1
    for first in range(0, len(sources), together):
        part = {name: values[first : first + together] for name, values in feed.items()}
        found = runner.scorer.run([ATTENTION[kind] for kind in kinds], part)
        for kind, weights in zip(kinds, found, strict=True):
            yield from ((kind, row, each) for row, each in enumerate(weights, first))


def _row_bytes(runner: OnnxRunner, kind: AttentionKind, source_length: int, target_length: int) -> int:
    """Return the bytes of the weights of one row; target_length: its tokens with BOS."""
    size = runner.attention[kind]
    return 4 * size.layers * size.heads * math.prod(matrix_shape(kind, source_length, target_length))


def _alignments(runner: OnnxRunner, case: GateCase) -> list[np.ndarray]:
    """Return the alignment of each row (target_length + 1, source_length), as a server computes it."""
    sources, targets = _padded(case)
    return [each.attention for each in runner.score(sources, case.source_lengths, targets, case.target_lengths)]


def _padded(case: GateCase) -> tuple[np.ndarray, np.ndarray]:
    """Return source and target ids (rows, length). A target without tokens has one, which is not scored."""
    return pad(case.sources).numpy(), pad([target or [EOS] for target in case.targets]).numpy()


def _alignment(runner: OnnxRunner, expected: Expected) -> np.ndarray:
    """Return the alignment of a row by the heads of the manifest (1, 1, target_length + 1, source_length)."""
    chosen = runner.manifest.alignment
    mean: np.ndarray = expected.attention["cross"][chosen.layer, list(chosen.heads)].mean(axis=0)
    return mean[None, None]


def _visible(found: np.ndarray, expected: np.ndarray, what: str, *, causal: bool) -> np.ndarray:
    """Return the weights of a row without padding. Raise ParityError if what must be hidden has any weight.

    found: (layers, heads, queries, keys), both padded
    expected: (layers, heads, queries, keys)
    """
    layers, heads, queries, keys = expected.shape
    if found.shape[:2] != (layers, heads):
        raise ParityError(f"{what} attention has {found.shape[:2]} layers and heads, the checkpoint {(layers, heads)}")
    found = finite(found[:, :, :queries], f"{what} attention weights")
    if found[..., keys:].any():
        raise ParityError(f"{what} attention gives weight to padding")
    visible = found[..., :keys]
    if causal and np.triu(visible, 1).any():
        raise ParityError(f"{what} attention gives weight to later target tokens")
    return visible


# The token gate: the engine and the reference search find the same tokens for real sentences.


@dataclass(frozen=True, slots=True)
class TokenReport:
    """The number of sentences with identical tokens, and the sentences that differ by a near tie.

    excused: the sentences that differ by a near tie
    """

    beam_size: int
    sentences: int
    identical: int
    excused: tuple[str, ...]

    def __str__(self) -> str:
        identical = f"{self.identical} of {self.sentences} sentences identical"
        if not self.excused:
            return identical
        return f"{identical}, {len(self.excused)} near ties (at most {max_near_ties(self.sentences)})"


def check_tokens(
    model: AnyModel,
    runner: Runner,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    beam_size: int,
    length_penalty: float,
    found: Sequence[tuple[Hypothesis, ...]] | None = None,
    known: Mapping[PairIds, ReferenceHypothesis] = MappingProxyType({}),
) -> TokenReport:
    """Compare the best hypotheses of engine and reference search for every text.

    found: the hypotheses of the engine, if it has found them already
    known: hypotheses that the reference search has found already, with its default settings

    Raises ParityError at the first difference that is no near tie, or if there are too many near ties.
    """
    sources, forced = [tuple(tokenizer.encode_source(text)) for text in texts], tokenizer.languages.forced
    if found is None:
        found = engine_search(runner, sources, beam_size, length_penalty, forced=forced)
    settings = replace(reference_settings(runner.limits, beam_size, length_penalty), forced=forced)
    expected = _referenced(model, sources, settings, known if settings == SearchSettings(forced=forced) else {})
    excused = []
    for text, source, (mine, *_), theirs in zip(texts, sources, found, expected, strict=True):
        if mine.tokens == theirs.tokens and mine.finished == theirs.finished:
            continue
        if not is_near_tie(model, runner, source, (mine, theirs), settings):
            raise ParityError(
                f"beam size {beam_size}: {text!r} becomes {tokenizer.decode(mine.tokens)!r} in the engine and "
                f"{tokenizer.decode(theirs.tokens)!r} in the reference"
            )
        excused.append(text)
    if len(excused) > max_near_ties(len(texts)):
        raise ParityError(
            f"beam size {beam_size}: {len(excused)} of {len(texts)} sentences are near ties, at most "
            f"{max_near_ties(len(texts))} may be; the first is {excused[0]!r}"
        )
    return TokenReport(beam_size, len(texts), len(texts) - len(excused), tuple(excused))


def _referenced(
    model: AnyModel,
    sources: Sequence[tuple[int, ...]],
    settings: SearchSettings,
    known: Mapping[PairIds, ReferenceHypothesis],
) -> list[ReferenceHypothesis]:
    """Return the best hypothesis of the reference search for each source; it searches for those that are not known."""
    more = [source for source in dict.fromkeys(sources) if (source, settings.forced) not in known]
    found = translate(model, more, settings, batch_size=max(SEARCHED_ROWS // settings.beam_size, 1))
    new = dict(zip(more, (best for best, *_ in found), strict=True))
    return [new[source] if source in new else known[source, settings.forced] for source in sources]


def reference_settings(limits: Limits, beam_size: int, length_penalty: float) -> SearchSettings:
    """Return the settings of the reference search with the limits of a bundle."""
    return SearchSettings(
        beam_size=beam_size,
        length_penalty=length_penalty,
        length_factor=limits.output_factor,
        length_extra=limits.output_extra,
    )


def is_near_tie(
    model: AnyModel,
    runner: Runner,
    source: tuple[int, ...],
    pair: tuple[Hypothesis, ReferenceHypothesis],
    settings: SearchSettings,
) -> bool:
    """Return whether the two results differ by a decision whose candidates are within NEAR_TIE in both implementations.

    In beam search the decision is the ranking of the two hypotheses, in greedy search the first token that differs.
    pair: the best hypothesis of the engine, and that of the reference search
    """
    mine, theirs = pair
    if settings.beam_size > 1:
        return _near(mine.score, theirs.score) and _near(_rescored(model, source, mine, settings), theirs.score)
    both = [(*tokens, EOS) for tokens in (mine.tokens, theirs.tokens)]
    position = next((step for step, (one, other) in enumerate(zip(*both, strict=False)) if one != other), None)
    if position is None:
        return False
    target = (*settings.forced, *mine.tokens[:position])
    candidates = [tokens[position] for tokens in both]
    expected, found = expected_log_probs(model, source, target)[len(target)], _last_logits(runner, source, target)
    return _near(*expected[candidates]) and _near(*found[candidates])


def _last_logits(runner: Runner, source: tuple[int, ...], target: tuple[int, ...]) -> np.ndarray:
    """Return the logits (vocab) of the graph after a target."""
    buffers = runner.open(BatchShape(1, 1, width_for(len(source)), len(target) + 1))
    buffers.place(0, runner.encode(np.array([source]), np.array([len(source)])), 0)
    for step, token in enumerate([BOS, *target]):
        buffers.token_ids[0], buffers.positions[0] = token, step
        found = buffers.step(1, logits=True)
    assert found.logits is not None
    row: np.ndarray = found.logits[0]
    return row


def _rescored(model: AnyModel, source: tuple[int, ...], mine: Hypothesis, settings: SearchSettings) -> float:
    """Return the score that the checkpoint gives to the hypothesis of the engine."""
    labels = [*mine.tokens, EOS][: len(mine.log_probs)]
    log_probs = expected_log_probs(model, source, (*settings.forced, *mine.tokens))[len(settings.forced) :]
    return float(log_probs[np.arange(len(labels)), labels].sum() / len(labels) ** settings.length_penalty)


def _near(one: float, other: float) -> bool:
    return abs(float(one) - float(other)) <= NEAR_TIE
