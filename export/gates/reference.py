"""What the checkpoint computes on a grid of shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lingon.bundle import Limits
from lingon.export.differences import finite
from lingon.export.graphs.layers import embedding_of
from lingon.text import BOS, EOS, UNK
from lingon.training.models.attention import SelfAttention
from lingon.training.models.interface import AnyModel, AttentionModel

ROWS, SOURCES, PASTS = (1, 2, 5), (1, 7, 16, 33), (0, 1, 6)
GridRow = tuple[Sequence[int], Sequence[int]]
"""Ids of a source, as the tokenizer frames it, and of a target, without BOS and EOS."""

LONGEST = 512  # tokens; a model that reads or writes more is compared up to this length
MOST_LOG_PROBS = 2**24  # of one row; a target is shorter than LONGEST where the vocabulary is larger than 32,768


@dataclass(frozen=True, slots=True)
class Case:
    """Random sources (ids, EOS last) and random targets of the lengths of the pasts (ids, without BOS and EOS)."""

    sources: list[list[int]]
    targets: list[list[int]]

    @classmethod
    def draw(cls, random: np.random.Generator, model: AnyModel, rows: int, longest: int, past: int) -> Case:
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
        self-attention of `encoder` and `decoder`; a target begins with BOS
    """

    log_probs: np.ndarray
    attention: dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Reference:
    """A case, and what the checkpoint computes for each of its rows."""

    case: Case
    rows: list[Expected]


def draw_grid(model: AnyModel, limits: Limits, *, attention: bool = True) -> list[Reference]:
    """Return cases with every combination of rows, source length and target length, and the longest source and target.

    Lengths are ragged, so that most cases have padding.

    attention: whether the weights of attention are wanted; without them there is less to compute
    """
    random, longest = np.random.default_rng(0), min(limits.max_source_tokens, LONGEST)
    sources = sorted({min(length, longest) for length in SOURCES})
    shapes = [(rows, source, past) for rows in ROWS for source in sources for past in PASTS]
    most = MOST_LOG_PROBS // embedding_of(model, "target").num_embeddings
    shapes.append((2, longest, min(limits.max_target_tokens, LONGEST, max(most, max(PASTS) + 1)) - 1))
    cases = [Case.draw(random, model, *shape) for shape in shapes]
    rows = [row for case in cases for row in zip(case.sources, case.targets, strict=True)]
    expected = iter(_expected(model, rows, attention=attention))
    return [Reference(case, list(islice(expected, len(case.sources)))) for case in cases]


def expected_log_probs(model: AnyModel, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
    """Return the checkpoint's log-probabilities (target_length + 1, vocab) of a target (without BOS and EOS)."""
    (row,) = _expected_together(model, [(source, target)], attention=False)
    return row.log_probs


def _log_probs(model: AnyModel, logits: Tensor) -> np.ndarray:
    return finite(model.log_probs(logits).numpy(), "the checkpoint's log-probabilities")


def _expected(model: AnyModel, rows: Sequence[GridRow], *, attention: bool) -> list[Expected]:
    """Return what the checkpoint computes for each row.

    Rows of equal lengths run together, which needs no padding: a run of few tokens mostly reads the weights.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for index, (source, target) in enumerate(rows):
        groups.setdefault((len(source), len(target)), []).append(index)
    found: dict[int, Expected] = {}
    for same in groups.values():
        found |= zip(same, _expected_together(model, [rows[index] for index in same], attention=attention), strict=True)
    return [found[index] for index in range(len(rows))]


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
