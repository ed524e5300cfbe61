"""The output layer in the graph: from hidden rows to the best next tokens, so that no row of logits leaves the graph.

The top k of a long row are searched in blocks: the k blocks with the largest maxima contain the k largest logits. This
and a softmax took 0.4 ms for 32 rows of 32,000 pieces; TopK over the row and a log-sum-exp took 0.9 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from lingon.bundle import names
from lingon.export.graphs.layers import (
    BLOCK,
    Layers,
    bias_of,
    embedding_of,
    pad_to_blocks,
    softcap,
    table_name,
    to_numpy,
)
from lingon.export.graphs.onnx_writer import GraphBuilder
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.interface import FORBIDDEN_LOGIT, AnyModel

NAME = "output"
FORBIDDEN_NAME = f"{NAME}.forbidden"
MOST_SORTED = 256  # values that the faster kernel of CUDA for TopK takes


@dataclass(frozen=True, slots=True)
class OutputLayer:
    """A writer of the output layer of a model."""

    model: AnyModel

    def logits(self, blocks: Layers, rows: str, named: str = "") -> str:
        """Return logits (n, vocab padded to blocks). Pieces that are never generated have probability 0."""
        if not self._cap:
            return blocks.matmul.linear(NAME, rows, self._weight, self._bias, shared=self._shared, named=named)
        logits = blocks.matmul.linear(NAME, rows, self._weight, self._bias, shared=self._shared)
        forbidden = blocks.graph.weight(FORBIDDEN_NAME, self._forbidden)
        return blocks.graph.op("Add", softcap(blocks.graph, logits, self._cap), forbidden, named=named or None)

    def parameters(self, graph: GraphBuilder) -> tuple[str, str]:
        """Return weight (vocab padded to blocks, dim) and bias (vocab padded to blocks) as tensors of a graph."""
        weight = graph.table(self._shared or f"{NAME}.weight", self._weight)
        return weight, graph.weight(f"{NAME}.bias", self._bias)

    def gather_pieces(self, blocks: Layers, pieces: str) -> None:
        """Output the rows of the layer for pieces, int64 (union), under the names that `logits_of_pieces` reads."""
        graph = blocks.graph
        for number, value in enumerate(
            blocks.matmul.gather_pieces(NAME, self._weight, self._bias, pieces, shared=self._shared)
        ):
            graph.output(value, f"{NAME}.{number}", *self._piece_tensors(blocks)[number])

    def logits_of_pieces(self, blocks: Layers, rows: str, batch: str) -> tuple[str, str]:
        """Return logits (n, union) over the pieces that are inputs of the graph, and the ids of these pieces.

        batch: int64 [sentences]. Pieces that a sentence must not use have probability 0
        """
        graph = blocks.graph
        logits, pieces, allowed = self.product_of_pieces(blocks, rows)
        union = graph.op("Shape", pieces)
        by_sentence = graph.op("Reshape", logits, graph.op("Concat", batch, graph.int64s(-1), union, axis=0))
        mask = graph.op("Unsqueeze", allowed, graph.int64s(1))
        masked = graph.op("Where", mask, by_sentence, graph.scalar(FORBIDDEN_LOGIT))
        return graph.op("Reshape", masked, graph.op("Concat", graph.int64s(-1), union, axis=0)), pieces

    def product_of_pieces(self, blocks: Layers, rows: str) -> tuple[str, str, str]:
        """Return logits (n, union) as `logits_of_pieces`, also of pieces that a sentence must not use.

        The others are inputs of the graph: the ids of the pieces, and bool (sentences, union), which it may use.
        """
        graph = blocks.graph
        pieces = graph.input(names.PIECE_IDS, np.int64, ["union"])
        allowed = graph.input(names.ALLOWED, np.bool_, ["sentences", "union"])
        chosen = [graph.input(f"{NAME}.{number}", *kept) for number, kept in enumerate(self._piece_tensors(blocks))]
        logits = blocks.matmul.linear_of_pieces(NAME, rows, chosen)
        if self._cap:
            forbidden = graph.gather(FORBIDDEN_NAME, self._forbidden, pieces)
            logits = graph.op("Add", softcap(graph, logits, self._cap), forbidden)
        return logits, pieces, allowed

    @property
    def width(self) -> int:
        """The number of columns of the logits."""
        return len(self._bias)

    def _piece_tensors(self, blocks: Layers) -> list[tuple[np.dtype[Any], list[int | str]]]:
        return blocks.matmul.piece_tensors(self._weight.shape[1])

    @property
    def _weight(self) -> np.ndarray:
        return pad_to_blocks(to_numpy(self.model.output.weight))

    @property
    def _bias(self) -> np.ndarray:
        bias = bias_of(self.model.output)
        return pad_to_blocks(bias) if self._cap else self._forbidden + pad_to_blocks(bias)

    @property
    def _forbidden(self) -> np.ndarray:
        """What is added to logits: after a soft cap, which would bound it, and else as part of the bias."""
        return pad_to_blocks(self.model.forbidden.cpu().numpy(), FORBIDDEN_LOGIT)

    @property
    def _cap(self) -> float:
        """The bound of the soft cap of logits, or 0. See TransformerSettings.output_softcap."""
        settings = self.model.settings
        return settings.output_softcap if isinstance(settings, TransformerSettings) else 0

    @property
    def _shared(self) -> str:
        shares = self.model.output.weight is embedding_of(self.model, "target").weight
        return table_name(self.model, "target") if shares else ""


def device_block(width: int) -> int:
    """Return the size of the blocks in which a device searches rows of `width` logits, padded to blocks.

    The kernel of CUDA for TopK takes 4 us for up to MOST_SORTED values, and 30 us for more, for 1 row as for 64.
    """
    block = BLOCK
    while width // block > MOST_SORTED and width % (2 * block) == 0 and block < MOST_SORTED:
        block *= 2
    return block


def write_candidates(graph: GraphBuilder, logits: str, pieces: str | None = None, block: int = BLOCK) -> None:
    """Output the candidates of each row with their log-probabilities.

    logits: float32 (rows, vocab padded to blocks)
    pieces: the piece of each column. Without it, the piece of a column is its index
    block: pieces of a block of the search, which divides the columns
    """
    count = graph.input(names.CANDIDATE_COUNT, np.int64, [1])
    columns, terms = _candidates(graph, logits, count, block)
    rows = ("rows", "candidates")
    graph.op("Add", *terms, named=graph.declare_output(names.CANDIDATE_LOG_PROBS, np.float32, rows))
    ids = graph.declare_output(names.CANDIDATE_IDS, np.int64, rows)
    if pieces is None:
        graph.op("Identity", columns, named=ids)
    else:
        graph.op("Gather", pieces, columns, named=ids)


def write_greedy_step(graph: GraphBuilder, logits: str, token_ids: str, positions: str, block: int) -> None:
    """Output what the next step of greedy search reads, under the names of the inputs that it replaces.

    The runner binds inputs and outputs to the same memory. So every output depends on all nodes that read its input.

    logits: float32 (rows, vocab padded to blocks)
    block: see write_candidates
    """
    columns = _likeliest(graph, logits, block)
    index = graph.input(names.STEP_INDEX, np.int64, [1])
    history = graph.input(names.HISTORY, np.float32, ["steps", "rows", 2])
    tokens = graph.op("Reshape", columns, graph.int64s(-1))
    graph.output(tokens, names.changed_name(token_ids), np.int64, ["rows"])
    after = graph.op("Add", positions, _ones(graph, tokens, np.int64))
    graph.output(after, names.changed_name(positions), np.int64, ["rows"])
    entry = graph.op(
        "Concat", graph.op("Cast", columns, to=TensorProto.FLOAT), _log_prob(graph, logits, columns), axis=1
    )
    where, entries = graph.op("Unsqueeze", index, graph.int64s(1)), graph.op("Unsqueeze", entry, graph.int64s(0))
    changed = graph.declare_output(names.changed_name(names.HISTORY), np.float32, ["steps", "rows", 2])
    graph.op("ScatterND", history, where, entries, named=changed)
    written = graph.op("Slice", graph.op("Reshape", changed, graph.int64s(-1)), *_first_element(graph))
    following = graph.op("Add", index, _ones(graph, written, np.float32))
    graph.output(following, names.changed_name(names.STEP_INDEX), np.int64, [1])


def _ones(graph: GraphBuilder, tokens: str, dtype: type[Any]) -> str:
    """Return a 1 for each token, which no kernel can compute before the token; dtype: of the tokens."""
    zero = graph.constant(np.zeros(1, dtype))
    return graph.op("Cast", graph.op("GreaterOrEqual", tokens, zero), to=TensorProto.INT64)


def _candidates(graph: GraphBuilder, logits: str, count: str, block: int) -> tuple[str, tuple[str, str]]:
    """Return the columns of the likeliest candidates of each row, and two terms of their log-probabilities.

    All are (rows, count), but for the second term, which is (rows, 1).
    """
    best, columns = _top_k(graph, logits, count, block)
    log_likeliest = _log_prob(graph, logits, graph.op("Slice", columns, *_first_column(graph)))
    difference = graph.op("Sub", best, graph.op("Slice", best, *_first_column(graph)))
    return columns, (difference, log_likeliest)


def _log_prob(graph: GraphBuilder, logits: str, column: str) -> str:
    """Return the log-probability of one column of each row: (rows, 1), from int64 (rows, 1)."""
    probability = graph.op("GatherElements", graph.op("Softmax", logits, axis=-1), column, axis=1)
    # The kernel of Log computes full vectors and the remainder differently in the last bit. It gets full vectors.
    repeated = graph.op("Mul", probability, graph.constant(np.ones((1, 16), np.float32)))
    return graph.op("Slice", graph.op("Log", repeated), *_first_column(graph))


def _likeliest(graph: GraphBuilder, logits: str, block: int) -> str:
    """Return the column of the largest value of each row, as `_top_k` does in a few nodes more: (rows, 1)."""
    _, block_id, position = _search(graph, logits, graph.int64s(1), block)
    return graph.op("Add", graph.op("Mul", block_id, graph.int64s(block)), position)


def _top_k(graph: GraphBuilder, logits: str, count: str, block: int) -> tuple[str, str]:
    """Return the `count` largest values of each row, the largest first, and their columns: (rows, count) each."""
    best, block_ids, positions = _search(graph, logits, count, block)
    size = graph.int64s(block)
    of_best = graph.op("GatherElements", block_ids, graph.op("Div", positions, size), axis=1)
    return best, graph.op("Add", graph.op("Mul", of_best, size), graph.op("Mod", positions, size))


def _search(graph: GraphBuilder, logits: str, count: str, block: int) -> tuple[str, str, str]:
    """Return the `count` largest values of each row, the blocks that were searched, and the positions of the values
    there.

    All are (rows, count), but there are no more blocks than a row has. Positions count through the searched blocks.
    """
    last, size = graph.int64s(-1), graph.int64s(block)
    blocks = graph.op("Reshape", logits, graph.int64s(0, -1, block))
    tops = graph.op("ReduceMax", blocks, last, keepdims=0)
    kept = graph.op("Min", count, graph.op("Shape", tops, start=1, end=2))
    _, block_ids = graph.ops("TopK", tops, kept, outputs=["top.of.blocks", "top.blocks"], axis=-1)
    found = graph.op("GatherND", blocks, graph.op("Unsqueeze", block_ids, last), batch_dims=1)
    flat = graph.op("Reshape", found, graph.op("Concat", last, graph.op("Mul", kept, size), axis=0))
    best, positions = graph.ops("TopK", flat, count, outputs=["best", "best.places"], axis=-1)
    return best, block_ids, positions


def _first_element(graph: GraphBuilder) -> tuple[str, str, str]:
    """Return the arguments of Slice for the first element of a vector."""
    return graph.int64s(0), graph.int64s(1), graph.int64s(0)


def _first_column(graph: GraphBuilder) -> tuple[str, str, str]:
    return graph.int64s(0), graph.int64s(1), graph.int64s(1)


def declare_step_attention(graph: GraphBuilder) -> str:
    """Declare and return the output of a step that says where its rows look."""
    return graph.declare_output(names.STEP_ATTENTION, np.float32, ("rows", "source_length"))


def write_step_attention(graph: GraphBuilder, weights: str) -> None:
    """Output where the rows of a step look; weights: float32 (sentences, beams, source_length)."""
    sizes = graph.op("Concat", graph.int64s(-1), graph.op("Shape", weights, start=2), axis=0)
    graph.op("Reshape", weights, sizes, named=declare_step_attention(graph))


def cast_to_float32(graph: GraphBuilder, value: str) -> str:
    """Cast a value to float32, whose range a sum of exponentials over the vocabulary needs."""
    return value if graph.dtype == np.float32 else graph.op("Cast", value, to=TensorProto.FLOAT)
