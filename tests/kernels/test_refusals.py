"""What an operator does not take is an error of one line that names the operator, never a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.native_operators import Arrays, refusal, session_of

pytestmark = pytest.mark.native
MOST = np.iinfo(np.int64).max


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def bytes_of(*shape: int, value: int = 1) -> np.ndarray:
    return np.full(shape, value, np.int8)


def halves(*shape: int) -> np.ndarray:
    return floats(*shape).astype(np.float16)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


LINEAR = {"norm": 0, "epsilon": 0.0, "relu": 0}
SIZES = "a scale, a bias or a norm of another size"
PRODUCTS = [
    ("Linear", [floats(2, 7), bytes_of(8, 3), floats(3), floats(3)], {}, "as many columns as its weights"),
    ("Linear", [np.array(1, np.float32), bytes_of(1, 3), floats(3), floats(3)], {}, "rows of at least one dimension"),
    ("Linear", [floats(2, 8), bytes_of(8, 3), floats(2), floats(3)], {}, SIZES),
    ("Linear", [floats(2, 8), bytes_of(8, 3), floats(3), floats(4)], {}, SIZES),
    ("Linear", [floats(2, 8), bytes_of(8, 3), floats(3), floats(3), floats(9), floats(8)], {"norm": 1}, SIZES),
    ("Linear", [floats(2, 8), bytes_of(8, 3), floats(3), floats(3), floats(8)], {"norm": 1}, "constant weights"),
    ("Linear", [floats(2, 8), bytes_of(8, 3), floats(3), floats(3)], {"norm": 2}, "constant weights"),
    ("Linear", [floats(2, 8), bytes_of(8, 3), floats(3), floats(3)], {"norm": 3}, "the norm 0, 1 or 2"),
    ("Linear", [floats(2, 8), bytes_of(8, 3), floats(3), floats(3)], {"norm": -1}, "the norm 0, 1 or 2"),
    ("Linear", [floats(2, 8), bytes_of(8), floats(3), floats(3)], {}, "weights of two dimensions"),
    ("Linear", [floats(2, 8), bytes_of(8, 3, value=64), floats(3), floats(3)], {}, "a weight beyond"),
    ("Linear", [floats(2, 8), bytes_of(8, 3, value=-64), floats(3), floats(3)], {}, "a weight beyond"),
    ("Linear", [floats(2, 0), bytes_of(0, 3), floats(3), floats(3)], {}, "1 to 65,536 inputs"),
    ("Linear", [floats(2, 8), bytes_of(8, 0), floats(0), floats(0)], {}, "1 to 16,777,216 outputs"),
    ("Linear", [floats(1, 65537), bytes_of(65537, 1), floats(1), floats(1)], {}, "1 to 65,536 inputs"),
    ("Linear", [floats(1, 1, 1, 1, 1, 2, 8), bytes_of(8, 3), floats(3), floats(3)], {}, "more than six dimensions"),
    (
        "Linear",
        [floats(2, 8), bytes_of(8, 3), floats(3), floats(3), None, None, floats(1, 3)],
        {},
        "a residual of the shape of the result",
    ),
]
FLOATS = [
    ([floats(2, 7), floats(3, 8), floats(3)], {}, "as many columns as its weights"),
    ([np.array(1, np.float32), floats(3, 1), floats(3)], {}, "rows of at least one dimension"),
    ([floats(2, 8), floats(3, 8), floats(2)], {}, SIZES),
    ([floats(2, 8), halves(3, 8), floats(3), floats(9), floats(8)], {"norm": 1}, SIZES),
    ([floats(2, 8), floats(3, 8), floats(3), floats(8)], {"norm": 1}, "constant weights"),
    ([floats(2, 8), floats(3, 8), floats(3)], {"norm": 3}, "the norm 0, 1 or 2"),
    ([floats(2, 8), floats(8), floats(3)], {}, "weights of two dimensions"),
    ([floats(2, 8), bytes_of(3, 8), floats(3)], {}, "expects float32"),
    ([floats(2, 0), floats(3, 0), floats(3)], {}, "1 to 65,536 inputs"),
    ([floats(2, 8), halves(0, 8), floats(0)], {}, "1 to 16,777,216 outputs"),
    ([floats(2, 8), halves(3, 8), floats(3), None, None, floats(1, 3)], {}, "a residual of the shape of the result"),
]
GATHERED = [bytes_of(1, 8 * 16), np.ones(3, np.int32), floats(3), floats(3)]
PIECES = [
    ("GatherColumns", [ints(3), bytes_of(8, 3), floats(3), floats(3)], "a piece that the vocabulary does not have"),
    ("GatherColumns", [ints(0, -1), bytes_of(8, 3), floats(3), floats(3)], "a piece that the vocabulary does not have"),
    ("GatherColumns", [ints(MOST), bytes_of(8, 3), floats(3), floats(3)], "a piece that the vocabulary does not have"),
    ("PackedLinear", [floats(2, 0), bytes_of(1, 0), *GATHERED[1:]], "1 to 65,536 inputs"),
    ("PackedLinear", [floats(1, 65544), bytes_of(1, 65544 * 16), *GATHERED[1:]], "1 to 65,536 inputs"),
    ("PackedLinear", [floats(2, 9), *GATHERED], "panels for as many columns"),
    ("PackedLinear", [floats(2, 8), bytes_of(2, 8 * 16), *GATHERED[1:]], "panels for as many columns"),
    ("PackedLinear", [floats(2, 8), *GATHERED[:2], floats(2), floats(3)], SIZES),
    ("PackedLinear", [floats(2, 8), *GATHERED[:3], floats(4)], SIZES),
    ("PackedLinear", [floats(2, 8), *GATHERED, floats(9), floats(9)], "rows as wide as their norm"),
    ("PackedLinear", [floats(2, 8), *GATHERED, floats(8), floats(9)], SIZES),
    ("FloatGatherColumns", [ints(3), floats(3, 8), floats(3)], "a piece that the vocabulary does not have"),
    ("FloatGatherColumns", [ints(0, -1), halves(3, 8), floats(3)], "a piece that the vocabulary does not have"),
    ("FloatGatherColumns", [ints(0), floats(3, 8), floats(2)], SIZES),
    ("FloatGatherColumns", [ints(0), bytes_of(3, 8), floats(3)], "weights of floats"),
    ("FloatGatherColumns", [ints(0), floats(8), floats(3)], "weights of two dimensions"),
    ("FloatGatherColumns", [ints(0), floats(3, 0), floats(3)], "1 to 65,536 inputs"),
    ("FloatPackedLinear", [floats(2, 0), floats(1, 0), floats(3)], "1 to 65,536 inputs"),
    ("FloatPackedLinear", [floats(2, 9), floats(1, 8 * 16), floats(3)], "panels for as many columns"),
    ("FloatPackedLinear", [floats(2, 8), floats(2, 8 * 16), floats(3)], "panels for as many columns"),
    ("FloatPackedLinear", [floats(2, 8), floats(1, 8 * 16), floats(3), floats(9), floats(9)], "wide as their norm"),
    ("FloatPackedLinear", [floats(2, 8), floats(1, 8 * 16), floats(3), floats(8), floats(9)], SIZES),
]
CELLS = [
    ([floats(2, 8), floats(3, 4)], "a gate and a value for each element"),
    ([floats(2, 9), floats(2, 4)], "a gate and a value for each element"),
    ([floats(16), floats(2, 4)], "gates and cells of two dimensions"),
    ([floats(2, 8), floats(2, 4), floats(2, 5)], "a residual of the shape of its cells"),
]
HEADS = "heads of a multiple of 8 dimensions"


def step(**changed: np.ndarray) -> list[np.ndarray]:
    given = {"packed": floats(2, 48), "keys": halves(2, 1, 4, 16), "values": halves(2, 1, 4, 16), "at": ints(0, 3)}
    return list({**given, **changed}.values())


def crossing(**changed: np.ndarray) -> list[np.ndarray]:
    given = {"query": floats(4, 16), "keys": halves(2, 1, 16, 5), "values": halves(2, 1, 5, 16), "lengths": ints(5, 1)}
    return list({**given, **changed}.values())


ATTENTION = [
    ("StepAttention", step(at=ints(0, 4)), 1, "a position beyond the capacity"),
    ("StepAttention", step(at=ints(-1, 0)), 1, "a position beyond the capacity"),
    ("StepAttention", step(at=ints(MOST, 0)), 1, "a position beyond the capacity"),
    ("StepAttention", step(at=ints(0)), 1, "a position for each row"),
    ("StepAttention", step(keys=halves(2, 1, 5, 16)), 1, "caches of four dimensions and of one shape"),
    ("StepAttention", step(keys=halves(1, 1, 4, 16), values=halves(1, 1, 4, 16)), 1, "caches for its rows and heads"),
    ("StepAttention", step(packed=floats(2, 49)), 1, "packed rows of two dimensions"),
    ("StepAttention", step(), 0, HEADS),
    ("StepAttention", step(), -1, HEADS),
    ("StepAttention", step(), 4, HEADS),
    ("StepAttention", step(packed=floats(2, 0)), MOST, HEADS),
    ("StepAttention", step(table=np.zeros((2, 3), np.int32)), 1, "a table for its rows and the capacity"),
    ("StepAttention", step(table=np.full((2, 4), 1, np.int32)), 1, "a table that points beyond its rows"),
    ("StepAttention", step(table=np.full((2, 4), -(1 << 31), np.int32)), 1, "a table that points beyond its rows"),
    (
        "StepAttention32",
        step(keys=floats(2, 1, 4, 16), values=floats(2, 1, 4, 16), at=ints(0, 4)),
        1,
        "a position beyond the capacity",
    ),
    ("CrossAttention", crossing(keys=floats(2, 1, 16, 5)), 1, "expects float32"),
    ("CrossAttention", crossing(values=floats(2, 1, 5, 16)), 1, "expects float16"),
    ("CrossAttention", crossing(lengths=ints(6, 1)), 1, "a length beyond the width"),
    ("CrossAttention", crossing(lengths=ints(0, 1)), 1, "a length beyond the width"),
    ("CrossAttention", crossing(lengths=ints(1)), 1, "a length for each sentence"),
    ("CrossAttention", crossing(query=floats(5, 16)), 1, "the same number of rows for each sentence"),
    ("CrossAttention", crossing(values=halves(2, 1, 4, 16)), 1, "values like its keys"),
    ("CrossAttention", crossing(keys=halves(2, 2, 8, 5)), 1, "keys for its heads"),
    ("CrossAttention", crossing(query=floats(4, 0)), 1, HEADS),
    ("SelfAttention", [floats(4, 24), ints(5)], 1, "a row for each token"),
    ("SelfAttention", [floats(4, 24), ints(5, -1)], 1, "sentences of 1 to 65,536 tokens"),
    ("SelfAttention", [floats(4, 24), ints(MOST, MOST)], 1, "sentences of 1 to 65,536 tokens"),
    ("SelfAttention", [floats(4, 25), ints(4)], 1, "packed rows of two dimensions"),
    ("SelfAttention", [floats(4, 0), ints(4)], MOST, HEADS),
]
LAYERS = {"heads": 2, "layer": 0, "layers": 1}
SENTENCES = [
    ("Tokens", [np.zeros((2, 3), np.int64), ints(1, 4)], {}, "a length beyond the width of the batch"),
    ("Tokens", [np.zeros((2, 3), np.int64), ints(1, 0)], {}, "a length beyond the width of the batch"),
    ("Tokens", [np.zeros((2, 3), np.int64), ints(1)], {}, "a length for each sentence"),
    ("Memory", [floats(3, 16), np.zeros((1, 3), np.int64), ints(2)], LAYERS, "a row for each token"),
    ("Memory", [floats(3, 16), np.zeros((2, 3), np.int64), ints(3)], LAYERS, "a length for each sentence"),
    ("Memory", [floats(3, 16), np.zeros((1, 2), np.int64), ints(3)], LAYERS, "a length beyond the width of the batch"),
    (
        "Memory",  # the doubled width would overflow and never reach this one
        [floats(0, 16), np.zeros((0, 2**59 + 1), np.int64), ints()],
        {**LAYERS, "narrowest": 1},
        "a width of at most 65,536",
    ),
    ("Memory", [floats(3, 17), np.zeros((1, 3), np.int64), ints(3)], LAYERS, "keys and values of its layers and heads"),
    ("Memory", [floats(3, 0), np.zeros((1, 3), np.int64), ints(3)], LAYERS, "keys and values of its layers and heads"),
    *[
        ("Memory", [floats(3, 16), np.zeros((1, 3), np.int64), ints(3)], {**LAYERS, **wrong}, message)
        for wrong, message in [
            ({"heads": 0}, "1 to 65,536 heads and layers"),
            ({"heads": MOST}, "1 to 65,536 heads and layers"),
            ({"layers": MOST, "layer": MOST - 1}, "1 to 65,536 heads and layers"),
            ({"layers": 0}, "a layer of its layers"),
            ({"layer": 1}, "a layer of its layers"),
            ({"layer": -1}, "a layer of its layers"),
        ]
    ],
]
ALLOWED = np.ones((2, 9), bool)
COUNT = "a count of 1 to 256 and of the columns at most"
CANDIDATES = [
    ([floats(2, 9), ints(0)], COUNT),
    ([floats(2, 9), ints(-1)], COUNT),
    ([floats(2, 9), ints(10)], COUNT),
    ([floats(2, 900), ints(257)], COUNT),
    ([floats(2, 0), ints(1)], COUNT),
    ([floats(9), ints(1)], "logits of two dimensions and one count"),
    ([floats(2, 9), ints(1, 2)], "logits of two dimensions and one count"),
    ([floats(2, 9), ints(1), ints(*range(8)), ALLOWED], "a piece for each column"),
    ([floats(2, 9), ints(1), ints(*range(9)), ALLOWED[:, :8]], "allowed columns for each sentence"),
    ([floats(3, 9), ints(1), ints(*range(9)), ALLOWED], "the same number of rows for each sentence"),
    ([floats(2, 9), ints(1), ints(*range(9)), ALLOWED[:0]], "the same number of rows for each sentence"),
    ([floats(2, 9), ints(1), ints(*range(9))], "expects bool"),
]


@pytest.mark.parametrize(("op", "given", "wrong", "message"), PRODUCTS)
def test_a_product_of_wrong_sizes_or_weights_is_refused(
    op: str, given: Arrays, wrong: dict[str, int], message: str
) -> None:
    assert message in refusal(op, *given, **{**LINEAR, **wrong})


@pytest.mark.parametrize(("given", "wrong", "message"), FLOATS)
def test_a_product_of_floats_of_wrong_sizes_is_refused(given: Arrays, wrong: dict[str, int], message: str) -> None:
    assert message in refusal("FloatLinear", *given, **{**LINEAR, **wrong})


@pytest.mark.parametrize(
    ("heads", "message"),
    [(ints(1), "a head that it does not have"), (ints(0, -1), "a head that it does not have"), (ints(), "a head at")],
)
def test_a_mean_of_heads_that_are_not_there_is_refused(heads: np.ndarray, message: str) -> None:
    assert message in refusal("CrossAttention", *crossing(), heads, optional=True, heads=1, scale=1.0)


@pytest.mark.parametrize(("op", "given", "message"), PIECES)
def test_a_piece_or_a_panel_that_is_not_there_is_refused(op: str, given: Arrays, message: str) -> None:
    products = {"PackedLinear": 4, "FloatPackedLinear": 3}  # with the number of inputs before those of a norm
    attributes = {"norm": len(given) > products[op] + 1, "epsilon": 0.0} if op in products else {}
    assert message in refusal(op, *given, **attributes)


@pytest.mark.parametrize(("given", "message"), CELLS)
def test_cells_without_their_gates_are_refused(given: Arrays, message: str) -> None:
    assert message in refusal("StepCell", *given)


@pytest.mark.parametrize(("op", "given", "heads", "message"), ATTENTION)
def test_attention_beyond_what_its_caches_hold_is_refused(op: str, given: Arrays, heads: int, message: str) -> None:
    assert message in refusal(op, *given, heads=heads, scale=1.0)


@pytest.mark.parametrize(("op", "given", "attributes", "message"), SENTENCES)
def test_sentences_and_layers_that_are_not_there_are_refused(
    op: str, given: Arrays, attributes: dict[str, Any], message: str
) -> None:
    assert message in refusal(op, *given, **attributes)


@pytest.mark.parametrize(("given", "message"), CANDIDATES)
def test_candidates_that_are_not_there_are_refused(given: Arrays, message: str) -> None:
    assert message in refusal("Candidates", *given)


TABLES = [
    ([ints(3), floats(3, 4)], "an id that the vocabulary does not have"),
    ([ints(-1), floats(3, 4)], "an id that the vocabulary does not have"),
    ([ints(1), floats(3)], "a table of two dimensions"),
    ([ints(1), np.ones((3, 4), np.int32)], "a table of floats"),
    ([ints(1), floats(3, 4), ints(5), floats(5, 4)], "a position beyond its table"),
    ([ints(1), floats(3, 4), ints(-1), floats(5, 4)], "a position beyond its table"),
    ([ints(1), floats(3, 4), ints(), floats(5, 4)], "positions for its ids"),
    ([ints(1, 1, 1), floats(3, 4), ints(0, 0), floats(5, 4)], "positions for its ids"),
    ([ints(1), floats(3, 4), ints(1), floats(5, 3)], "positions as wide as its pieces"),
]


@pytest.mark.parametrize(("given", "message"), TABLES)
def test_ids_and_positions_that_are_not_there_are_refused(given: Arrays, message: str) -> None:
    assert message in refusal("Embed", *given, scale=1.0)


def beams(**changed: np.ndarray) -> list[np.ndarray]:
    """The inputs of a sound BeamStep of one sentence with two beams."""
    given = {
        "ids": np.zeros((2, 2), np.int64),
        "log_probs": floats(2, 2),
        "tokens": ints(0, 0),
        "positions": ints(0, 0),
        "rows": np.array([[0, 1]]),
        "totals": floats(1, 2),
        "history": np.zeros((1, 2, 3), np.int64),
        "history_log_probs": floats(1, 2, 3),
        "table": np.zeros((2, 3), np.int32),
    }
    return list({**given, **changed}.values())


BEAMS = [
    (beams(positions=ints(3, 3)), "a position beyond the capacity"),
    (beams(positions=ints(-1, -1)), "a position beyond the capacity"),
    (beams(positions=ints(0, 1)), "another one than that of the other beams"),
    (beams(rows=np.array([[0, 2]])), "a row that its sentence does not have"),
    (beams(rows=np.array([[-1, 0]])), "a row that its sentence does not have"),
    (beams(ids=np.zeros((2, 1), np.int64), log_probs=floats(2, 1)), "1 to 128 beams of two candidates"),
    (beams(ids=np.zeros((2, 3), np.int64)), "candidates and a history"),
    (beams(tokens=ints(0)), "a token for each row"),
    (beams(totals=floats(2, 1)), "a total for each beam"),
    (beams(table=np.zeros((2, 4), np.int32)), "a table for its rows"),
]


@pytest.mark.parametrize(("given", "message"), BEAMS)
def test_beams_beyond_their_arrays_are_refused(given: Arrays, message: str) -> None:
    assert message in refusal("BeamStep", *given, end=2)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_weights_that_are_not_constant_are_refused_when_the_graph_is_loaded(place: int) -> None:
    given = [floats(2, 8), bytes_of(8, 3), floats(3), floats(3)]
    with pytest.raises(Exception, match=r"lingon\.Linear expects constant weights"):
        session_of("Linear", given, constant=range(place + 1, 6), **LINEAR)
