"""The host code of the operators for cards: what it launches, with which arguments, and what it refuses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from lingon.serving.runtime import card as runtime
from tests.support.card_emulation import (
    PARAMETERS,
    SHARED,
    WARPS,
    EmulatedCard,
    aligned,
    bind,
    emulated_card,
    node_graph,
)

pytestmark = pytest.mark.native

HALF, SMALL, LONG, FLOAT = "float16", "int32", "int64", "float32"
SCRATCH = "scratch memory"


@pytest.fixture
def card() -> Iterator[EmulatedCard]:
    """A card that computes nothing."""
    with emulated_card(compute=False) as made:
        yield made


@dataclass(frozen=True)
class Case:
    """A node and the launches that it makes.

    shapes: by input, its type and its dimensions; None for one that is missing
    outputs: the types of the outputs; in_place: by output, the input in whose memory it is
    launches: the kernel, its grid, and its arguments: pointers as in.N, out.N, None or SCRATCH
    constant: inputs that are constants of the graph; values: of inputs that are not all 1
    """

    op: str
    shapes: Sequence[tuple[str, Sequence[int]] | None]
    outputs: Sequence[str]
    launches: Sequence[tuple[str, tuple[int, int, int], tuple[Any, ...]]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    in_place: Mapping[int, int] = field(default_factory=dict)
    constant: Sequence[int] = ()
    values: Mapping[int, int] = field(default_factory=dict)

    def arrays(self) -> list[np.ndarray | None]:
        return [
            None if each is None else aligned(np.full(each[1], self.values.get(place, 1), each[0]))
            for place, each in enumerate(self.shapes)
        ]

    def with_shape(self, place: int, *dims: int) -> Case:
        """Return the case with other dimensions of an input."""
        shapes = list(self.shapes)
        given = shapes[place]
        assert given is not None
        shapes[place] = given[0], dims
        return replace(self, shapes=shapes)


def linear(rows: int, inputs: int, outputs: int, kernel: str, grid: tuple[int, int, int], **options: Any) -> Case:
    """A product; options: norm, relu, residual, and kept, whether the normed rows are an output."""
    norm, relu, residual, kept = (options.get(name, 0) for name in ("norm", "relu", "residual", "kept"))
    shapes: list[tuple[str, Sequence[int]] | None] = [
        (HALF, (rows, inputs)),
        (HALF, (outputs, inputs)),
        (HALF, (outputs,)),
        (HALF, (inputs,)) if norm else None,
        (HALF, (inputs,)) if norm == 1 else None,
        (HALF, (rows, outputs)) if residual else None,
    ]
    pointers = [None if each is None else f"in.{place}" for place, each in enumerate(shapes)]
    written = "out.0", "out.1" if kept else None
    arguments = (*pointers, *written, rows, outputs, inputs, 0.5, relu, residual, kept)
    attributes = dict(norm=norm, epsilon=0.5, relu=relu)
    return Case("FloatLinear", shapes, [HALF] * (1 + kept), [(kernel, grid, arguments)], attributes)


def normed_before(rows: int, *, kept: bool = False) -> Case:
    """A product of rows that are too wide for a kernel with a norm; kept: whether the normed rows are an output."""
    tile, grid = ("m16", (2, 1, 1)) if rows <= 16 else ("m32n32", (1, 2, 1))
    case = linear(rows, 1040, 32, f"linear_none_{tile}", grid, norm=1)
    ((kernel, _, arguments),) = case.launches
    normed = "out.1" if kept else SCRATCH
    norm = ("norm_layer", (rows, 1, 1), ("in.0", "in.3", "in.4", normed, rows, 1040, 0.5))
    product = (normed, *arguments[1:3], None, None, *arguments[5:])
    return replace(case, outputs=[HALF] * (1 + kept), launches=[norm, (kernel, grid, product)])


def choose(rows: int, count: int, kernels: tuple[str, str], *, logits: bool = False, norm: int = 0) -> Case:
    """A choice among 272 columns, which are three blocks."""
    shapes: list[tuple[str, Sequence[int]] | None] = [
        *((HALF, (rows, 64)), (HALF, (272, 64)), (HALF, (272,)), (LONG, (1,))),
        (HALF, (64,)) if norm else None,
        (HALF, (64,)) if norm == 1 else None,
    ]
    grid = (3, 1 if rows <= 16 else -(-rows // 32), 1)
    read, written = SCRATCH if norm else "in.0", "out.2" if logits else None
    launches: list[tuple[str, tuple[int, int, int], tuple[Any, ...]]] = [
        (kernels[0], grid, (read, "in.1", "in.2", SCRATCH, SCRATCH, SCRATCH, written, rows, 272, 64, 3)),
        (kernels[1], (rows, 1, 1), (SCRATCH, SCRATCH, SCRATCH, "out.1", "out.0", 3, count)),
    ]
    if norm:
        gains = "in.4", "in.5" if norm == 1 else None
        name = "norm_layer" if norm == 1 else "norm_rms"
        launches.insert(0, (name, (rows, 1, 1), ("in.0", *gains, SCRATCH, rows, 64, 0.25)))
    op, outputs = ("ChooseWithLogits", [LONG, FLOAT, FLOAT]) if logits else ("Choose", [LONG, FLOAT])
    return Case(op, shapes, outputs, launches, dict(norm=norm, epsilon=0.25), values={3: count})


def beam(sentences: int, beams: int, kernel: str, candidates: int = 4) -> Case:
    rows, log = sentences * beams, (7, sentences * beams, candidates)
    shapes = [
        *((LONG, (rows, candidates)), (FLOAT, (rows, candidates)), (LONG, (rows,)), (LONG, (rows,))),
        *((LONG, (sentences, beams)), (FLOAT, (sentences, beams)), (SMALL, (rows, 9))),
        *((LONG, log), (FLOAT, log), (LONG, (1,))),
    ]
    pointers = *(f"in.{place}" for place in range(10)), "out.0", "out.1"
    launches = [
        (kernel, (sentences, 1, 1), (*pointers, sentences, beams, candidates, 9, 7, 3)),
        ("advance_step", (1, 1, 1), ("in.9", "out.2", 7)),
    ]
    return Case("BeamStep", shapes, [LONG, LONG, LONG], launches, dict(end=3))


EMBED = Case(
    "Embed",
    [(LONG, (5,)), (HALF, (9, 1040)), (LONG, (5,)), (HALF, (7, 1040))],
    [HALF],
    [("embed", (5, 2, 1), ("in.0", "in.1", "in.2", "in.3", "out.0", 1040, 8.0, 1))],
    dict(scale=8.0),
)
STEP = Case(
    "StepAttention",
    [(HALF, (3, 384)), (HALF, (3, 2, 11, 64)), (HALF, (3, 2, 11, 64)), (LONG, (3,)), (SMALL, (3, 11))],
    [HALF],
    [("step_attention_d64", (3, 2, 1), ("in.0", "in.1", "in.2", "in.4", "in.3", "out.0", 2, 11, 0.125))],
    dict(heads=2, scale=0.125),
)
CROSS = Case(
    "CrossAttention",
    [(HALF, (40, 64)), (HALF, (2, 2, 32, 48)), (HALF, (2, 2, 48, 32)), (LONG, (2,))],
    [HALF],
    [("cross_attention_d32", (2, 2, 2), ("in.0", "in.1", "in.2", "in.3", "out.0", 2, 20, 48, 1.0))],
    dict(heads=2, scale=1.0),
)
SELF = Case(
    "SelfAttention",
    [(HALF, (20, 768)), (SMALL, (3, 4))],
    [HALF],
    [("self_attention_d128", (3, 2, 1), ("in.0", "in.1", "out.0", 2, 0.5))],
    dict(heads=2, scale=0.5),
)
PLACE = Case(
    "PlaceMemory",
    [(HALF, (6, 384)), (SMALL, (5, 4)), (HALF, (4, 2, 32, 10)), (HALF, (4, 2, 10, 32))],
    [SMALL],
    [("place_memory", (5, 2, 1), ("in.0", "in.1", "in.2", "in.3", 2, 32, 10, 384, 256))],
    dict(heads=2, layer=2, layers=3),
)
GREEDY = Case(
    "GreedyStep",
    [(LONG, (5, 2)), (FLOAT, (5, 2)), (LONG, (5,)), (LONG, (5,)), (FLOAT, (7, 5, 2)), (LONG, (1,))],
    [LONG, LONG, LONG],
    [
        (
            "greedy_step",
            (1, 1, 1),
            (*(f"in.{place}" for place in range(6)), *(f"out.{place}" for place in range(3)), 5, 2, 7),
        )
    ],
)
LINEAR = linear(3, 256, 96, "linear_layer_k256_m16", (6, 1, 1), norm=1)
CHOOSE = choose(3, 4, ("choose_t8_m16", "merge_t8"))
BEAM = beam(3, 4, "beam_step_b4")

CASES = {
    "product of few rows": linear(16, 2048, 48, "linear_none_m16", (3, 1, 1)),
    "product of more rows": linear(65, 64, 144, "linear_none_m32n32", (5, 3, 1), relu=1, residual=1),
    "product of 127 large tiles": linear(4064, 64, 32, "linear_none_m32n32", (1, 127, 1)),
    "product of 128 large tiles": linear(2017, 64, 80, "linear_none_m32", (2, 64, 1)),
    "layer norm": LINEAR,
    "layer norm of 272": linear(16, 272, 96, "linear_layer_k512_m16", (6, 1, 1), norm=1, residual=1),
    "RMS norm": linear(17, 528, 96, "linear_rms_k1024_m32n32", (3, 1, 1), norm=2, relu=1),
    "RMS norm of 1024": linear(3, 1024, 16, "linear_rms_k1024_m16", (1, 1, 1), norm=2),
    "kept layer norm": linear(3, 512, 32, "linear_layer_k512_m16", (2, 1, 1), norm=1, kept=1),
    "kept RMS norm": linear(33, 256, 48, "linear_rms_k256_m32n32", (2, 2, 1), norm=2, residual=1, kept=1),
    "norm beforehand": normed_before(3),
    "kept norm beforehand": normed_before(3, kept=True),
    "kept norm beforehand of more rows": normed_before(33, kept=True),
    "norm beforehand of more rows": normed_before(33),
    "constant weights": replace(LINEAR, constant=(1, 2)),
    "few constant weights": replace(linear(3, 64, 16, "linear_rms_k256_m16", (1, 1, 1), norm=2), constant=(1, 2)),
    "many constant weights": replace(
        linear(20, 1024, 64, "linear_layer_k1024_m32n32", (2, 1, 1), norm=1), constant=(1, 2)
    ),
    "constant weights with a norm beforehand": replace(normed_before(3), constant=(1, 2)),
    "embedding": EMBED,
    "embedding without positions": replace(
        EMBED,
        shapes=EMBED.shapes[:2],
        launches=[("embed", (5, 2, 1), ("in.0", "in.1", None, None, "out.0", 1040, 8.0, 0))],
    ),
    "step attention": STEP,
    "cross-attention": CROSS,
    "self-attention": SELF,
    "placing": PLACE,
    "choice of one": choose(16, 1, ("choose_t1_m16", "merge_t1")),
    "choice of eight": choose(17, 8, ("choose_t8_m32", "merge_t8")),
    "choice of nine": choose(65, 9, ("choose_t16_m32", "merge_t16"), norm=1),
    "choice with logits": choose(2, 2, ("choose_t8_m16_logits", "merge_t8"), logits=True, norm=2),
    "greedy search": GREEDY,
    **{
        f"search with {beams} beams": beam(3, beams, f"beam_step_b{kernel}")
        for beams, kernel in ((1, 2), (2, 2), (3, 4), (4, 4), (5, 8), (16, 16))
    },
    "search with more candidates than its beams need": beam(2, 2, "beam_step_b4", 5),
    "greedy search in place": replace(
        GREEDY,
        launches=[
            ("greedy_step", (1, 1, 1), (*(f"in.{place}" for place in (*range(6), 2, 3, 5)), 5, 2, 7)),
        ],
        in_place={0: 2, 1: 3, 2: 5},
    ),
}


def session_of(card: EmulatedCard, case: Case, arrays: Sequence[np.ndarray | None]) -> ort.InferenceSession:
    return card.session(node_graph(case.op, arrays, case.outputs, case.constant, **case.attributes))


def launch(card: EmulatedCard, case: Case, arrays: Sequence[np.ndarray | None] | None = None) -> dict[int, str]:
    """Run a node, and return the names of its inputs and outputs by address."""
    arrays = case.arrays() if arrays is None else arrays
    session = session_of(card, case, arrays)
    feed = {
        f"in.{place}": array for place, array in enumerate(arrays) if array is not None and place not in case.constant
    }
    places = {f"out.{output}": f"in.{place}" for output, place in case.in_place.items()}
    binding = bind(session, feed, places)
    session.run_with_iobinding(binding)
    outputs = zip(session.get_outputs(), binding.get_outputs(), strict=True)
    names = {value.data_ptr(): output.name for output, value in outputs if output.name not in places}
    return names | {array.ctypes.data: name for name, array in feed.items()}


def refusal(card: EmulatedCard, case: Case, arrays: Sequence[np.ndarray | None] | None = None) -> str:
    """Return the message with which a node is refused, from the name of the operator on."""
    with pytest.raises(Exception, match=rf"lingon\.{case.op}[ :]") as caught:
        launch(card, case, arrays)
    message = str(caught.value).strip()
    assert "\n" not in message
    return re.split(rf"lingon\.{case.op}:? ", message, maxsplit=1)[1]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_node_launches_its_kernels_with_all_their_arguments(card: EmulatedCard, case: Case):
    names = launch(card, case)
    assert [(each.kernel, each.grid) for each in card.launches] == [expected[:2] for expected in case.launches]
    for found, (kernel, _, expected) in zip(card.launches, case.launches, strict=True):
        assert (found.threads, found.shared) == (32 * WARPS[kernel], SHARED[kernel])
        assert found.stream is None  # as always on the CPU
        for value, wanted, kind in zip(found.arguments, expected, PARAMETERS[kernel], strict=True):
            if kind == "p" and wanted == SCRATCH:
                assert value not in {None, *names}
            elif kind == "p":
                # A constant of the graph is where the session has copied it to.
                constant = wanted in {f"in.{place}" for place in case.constant}
                assert names.get(value, value) == wanted or (constant and value not in {None, *names})
            else:
                assert value == wanted


def test_every_operator_is_for_cuda_and_reads_counts_alone_in_main_memory(card: EmulatedCard):
    cpu_input = -2  # OrtMemTypeCPUInput
    names = {case.op for case in CASES.values()} | {"Choose"}
    on_cuda = dict.fromkeys(names, "CUDAExecutionProvider")
    counted = dict.fromkeys(("Choose", "ChooseWithLogits"), f"CUDAExecutionProvider 3:{cpu_input}")
    assert card.operators() == on_cuda | counted


VARIANT = re.compile(r"_(none|layer|rms|logits|[a-z]\d+(n\d+)?)(?=_|$)")


def test_every_kernel_is_launched_by_some_node(card: EmulatedCard):
    """The other names differ in one part alone: a norm, a size or a number of candidates."""
    launched = {expected[0] for case in CASES.values() for expected in case.launches}
    kinds = {VARIANT.sub("", name) for name in PARAMETERS}
    assert {VARIANT.sub("", name) for name in launched} == kinds


def test_the_parts_of_scratch_memory_do_not_overlap(card: EmulatedCard):
    launch(card, choose(65, 9, ("choose_t16_m32", "merge_t16"), norm=1))
    norm, chosen, merged = (each.arguments for each in card.launches)
    normed, best, top, total = chosen[0], *chosen[3:6]
    assert normed == norm[3]
    assert (best, top, total) == merged[:3]
    sizes = {normed: 65 * 64 * 2, best: 65 * 3 * 16 * 8, top: 65 * 3 * 4, total: 65 * 3 * 4}
    ends = [begin + size for begin, size in sorted(sizes.items())]
    assert all(end <= begin for end, begin in zip(ends, sorted(sizes)[1:], strict=False))


def test_scratch_memory_is_given_back_after_every_run(card: EmulatedCard):
    """An arena that grew in every run would end in a full card."""
    case = normed_before(3)
    arrays = case.arrays()
    session = session_of(card, case, arrays)
    feed = {f"in.{place}": array for place, array in enumerate(arrays) if array is not None}
    for _ in range(50):
        session.run_with_iobinding(bind(session, feed, {}))
    assert len({each.arguments[3] for each in card.launches if each.kernel == "norm_layer"}) <= 2


def test_shared_memory_beyond_what_every_kernel_may_have_is_reserved_once(card: EmulatedCard):
    launch(card, CHOOSE)
    assert card.reserved("choose_t8_m16") == SHARED["choose_t8_m16"] > 49152
    assert card.reserved("merge_t8") == 0


def without_rows(case: Case) -> Case:
    rows = case.shapes[0]
    assert rows is not None
    return replace(
        case,
        shapes=[each and (each[0], [0 if size == rows[1][0] else size for size in each[1]]) for each in case.shapes],
    )


EMPTY = {
    "FloatLinear": without_rows(LINEAR),
    "FloatLinear with kept rows": without_rows(replace(LINEAR, outputs=[HALF, HALF])),
    "Embed": without_rows(EMBED),
    "StepAttention": without_rows(STEP),
    "CrossAttention": CROSS.with_shape(0, 0, 64),
    "CrossAttention without sentences": replace(
        CROSS, shapes=[(HALF, (0, 64)), (HALF, (0, 2, 32, 48)), (HALF, (0, 2, 48, 32)), (LONG, (0,))]
    ),
    "SelfAttention": SELF.with_shape(0, 0, 768),
    "SelfAttention without tiles": SELF.with_shape(1, 0, 4),
    "PlaceMemory": PLACE.with_shape(1, 0, 4),
    "Choose": choose(0, 4, ("", "")),
    "ChooseWithLogits": choose(0, 4, ("", ""), logits=True, norm=1),
    "GreedyStep": without_rows(GREEDY),
    "BeamStep": beam(0, 4, ""),
}


@pytest.mark.parametrize("case", EMPTY.values(), ids=EMPTY.keys())
def test_without_rows_nothing_is_launched(card: EmulatedCard, case: Case):
    launch(card, case)
    assert card.launches == []


REFUSED = {
    "inputs": (linear(3, 40, 96, "", (0, 0, 0)), "expects the inputs of weights to be a multiple of 16, got 40"),
    "outputs": (linear(3, 64, 20, "", (0, 0, 0)), "expects the outputs of weights to be a multiple of 16, got 20"),
    "rows": (LINEAR.with_shape(0, 3, 128), "expects rows of shape (3, 256), got (3, 128)"),
    "rank of weights": (LINEAR.with_shape(1, 96), "expects weights of 2 dimensions, got (96)"),
    "bias": (LINEAR.with_shape(2, 95), "expects a bias of shape (96), got (95)"),
    "gain": (LINEAR.with_shape(3, 128), "expects a gain of shape (256), got (128)"),
    "no shift": (
        replace(LINEAR, shapes=[*LINEAR.shapes[:4], None, None]),
        "expects a shift of shape (256), got ()",
    ),
    "residual": (
        linear(3, 64, 96, "", (0, 0, 0), residual=1).with_shape(5, 4, 96),
        "expects a residual of shape (3, 96), got (4, 96)",
    ),
    "kept rows without a norm": (linear(3, 64, 96, "", (0, 0, 0), kept=1), "writes normed rows only with a norm"),
    "norm": (replace(LINEAR, attributes=dict(norm=3, epsilon=0.5, relu=0)), "takes the norm of 0 to 2, got 3"),
    "width of pieces": (EMBED.with_shape(1, 9, 40), "expects the dimensions of pieces to be a multiple of 16, got 40"),
    "table of positions": (
        EMBED.with_shape(3, 7, 64),
        "expects the table of positions of shape (7, 1040), got (7, 64)",
    ),
    "positions": (EMBED.with_shape(2, 4), "expects positions of shape (5), got (4)"),
    "heads": (
        replace(STEP, attributes=dict(heads=4, scale=1.0)).with_shape(0, 3, 192),
        "expects heads of 32, 64 or 128 dimensions, got 64 dimensions for 4 heads",
    ),
    "packed": (STEP.with_shape(0, 3, 128), "expects packed rows of 3 * dim, got 128"),
    "keys": (STEP.with_shape(1, 3, 2, 11, 32), "expects keys of shape (3, 2, 11, 64), got (3, 2, 11, 32)"),
    "values": (STEP.with_shape(2, 3, 2, 12, 64), "expects values of shape (3, 2, 11, 64), got (3, 2, 12, 64)"),
    "table": (STEP.with_shape(4, 3, 12), "expects a table of shape (3, 11), got (3, 12)"),
    "width": (
        CROSS.with_shape(1, 2, 2, 32, 40).with_shape(2, 2, 2, 40, 32),
        "expects the width of the memory to be a multiple of 16, got 40",
    ),
    "rows of sentences": (
        CROSS.with_shape(0, 41, 64),
        "expects the same number of rows for each sentence, got 41 rows for 2 sentences",
    ),
    "lengths": (CROSS.with_shape(3, 3), "expects lengths of shape (2), got (3)"),
    "tiles": (SELF.with_shape(1, 3, 3), "expects tiles of shape (3, 4), got (3, 3)"),
    "layer": (replace(PLACE, attributes=dict(heads=2, layer=3, layers=3)), "takes a layer of 0 to 2, got 3"),
    "columns": (
        replace(PLACE, attributes=dict(heads=2, layer=2, layers=4)),
        "expects heads of 32, 64 or 128 dimensions, got 48 dimensions for 2 heads",
    ),
    "count": (choose(3, 17, ("", "")), "takes a count of 1 to 16, got 17"),
    "count of none": (choose(3, 0, ("", "")), "takes a count of 1 to 16, got 0"),
    "count of more columns": (
        choose(3, 16, ("", "")).with_shape(1, 0, 64).with_shape(2, 0),
        "expects the outputs of weights to be a multiple of 16, got 0",
    ),
    "history": (GREEDY.with_shape(4, 7, 4, 2), "expects a history of shape (7, 5, 2), got (7, 4, 2)"),
    "beams": (beam(1, 17, ""), "takes beams of 1 to 16, got 17"),
    "candidates": (
        BEAM.with_shape(0, 11, 4).with_shape(1, 11, 4),
        "expects candidates of shape (12, 4), got (11, 4)",
    ),
    "log": (BEAM.with_shape(7, 7, 12, 5), "expects a log of shape (7, 12, 4), got (7, 12, 5)"),
    "one candidate": (
        BEAM.with_shape(0, 12, 1).with_shape(1, 12, 1).with_shape(7, 7, 12, 1).with_shape(8, 7, 12, 1),
        "takes candidates of 2 to 32, got 1",
    ),
}


@pytest.mark.parametrize(("case", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_shape_that_no_kernel_takes_is_refused_with_the_bound_and_the_value(
    card: EmulatedCard, case: Case, message: str
):
    assert refusal(card, case) == message
    assert card.launches == []


def test_a_grid_beyond_the_driver_is_refused(card: EmulatedCard):
    case = replace(
        CROSS,
        shapes=[(HALF, (16 * 65536, 32)), (HALF, (1, 1, 32, 16)), (HALF, (1, 1, 16, 32)), (LONG, (1,))],
        attributes=dict(heads=1, scale=1.0),
    )
    assert refusal(card, case) == "takes a grid of 1 to 65535, got 65536"


NAMES = {
    ("FloatLinear", 0): "rows",
    ("FloatLinear", 1): "weights",
    ("StepAttention", 4): "a table",
    ("CrossAttention", 3): "lengths",
    ("BeamStep", 8): "a log of log-probabilities",
}


@pytest.mark.parametrize(("op", "place"), NAMES)
def test_memory_that_is_not_aligned_is_refused(card: EmulatedCard, op: str, place: int):
    case = next(each for each in (LINEAR, STEP, CROSS, BEAM) if each.op == op)
    arrays = case.arrays()
    given = arrays[place]
    assert given is not None
    arrays[place] = aligned(given, offset=8)
    assert re.fullmatch(
        rf"expects {NAMES[op, place]} at a multiple of 16 bytes, got the address 0x[0-9a-f]+8",
        refusal(card, case, arrays),
    )
    assert card.launches == []


def test_rows_of_another_type_are_refused_when_the_session_is_made(card: EmulatedCard):
    case = replace(LINEAR, shapes=[(FLOAT, (3, 256)), *LINEAR.shapes[1:]])
    with pytest.raises(Exception, match=r"Type.*tensor\(float"):
        launch(card, case)


def test_an_error_of_a_launch_is_one_line_with_its_number_and_name(card: EmulatedCard):
    card.fail("cuLaunchKernel", 700)
    message = "the driver said 700 (CUDA_ERROR_ILLEGAL_ADDRESS) when launching linear_layer_k256_m16"
    assert refusal(card, LINEAR) == message
    card.fail("cuLaunchKernel", 4711)
    assert refusal(card, EMBED) == "the driver said 4711 (unknown) when launching embed"


@pytest.mark.parametrize(
    ("call", "doing"),
    [
        ("cuModuleLoadData", "loading"),
        ("cuModuleGetFunction", "looking for"),
        ("cuCtxGetCurrent", "asking for the context of"),
        ("cuFuncSetAttribute", "reserving the shared memory of"),
    ],
)
def test_an_error_of_loading_names_the_kernel_when_the_session_is_made(card: EmulatedCard, call: str, doing: str):
    card.fail(call, 1)
    with pytest.raises(
        Exception, match=rf"lingon\.Choose: the driver said 1 \(CUDA_ERROR_INVALID_VALUE\) when {doing}"
    ):
        session_of(card, CHOOSE, CHOOSE.arrays())


def test_no_module_is_loaded_while_a_node_runs(card: EmulatedCard):
    """A run may be recorded as a CUDA graph, which no module can be loaded in."""
    arrays = CHOOSE.arrays()
    session = session_of(card, CHOOSE, arrays)
    for call in ("cuModuleLoadData", "cuModuleGetFunction", "cuCtxGetCurrent", "cuFuncSetAttribute"):
        card.fail(call)
    feed = {f"in.{place}": array for place, array in enumerate(arrays) if array is not None}
    session.run_with_iobinding(bind(session, feed, {}))
    assert len(card.launches) == 2


def test_a_kernel_is_loaded_once_for_all_nodes(card: EmulatedCard):
    session_of(card, EMBED, EMBED.arrays())
    card.fail("cuModuleLoadData")
    session_of(card, EMBED, EMBED.arrays())
    with pytest.raises(Exception, match="when loading place_memory"):
        session_of(card, PLACE, PLACE.arrays())


def test_without_a_context_a_session_is_refused(card: EmulatedCard):
    card.fail("no context")
    with pytest.raises(Exception, match=r"lingon\.Embed: this thread has no CUDA context to load embed"):
        session_of(card, EMBED, EMBED.arrays())


def test_without_kernels_a_session_is_refused():
    with (
        emulated_card(compute=False, kernels=False) as card,
        pytest.raises(Exception, match=r"lingon\.Embed has no kernel embed: the archive of kernels is not loaded"),
    ):
        session_of(card, EMBED, EMBED.arrays())


def test_without_a_driver_a_session_is_refused(card: EmulatedCard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LINGON_CUDA_DRIVER", str(tmp_path / "missing.so"))
    with pytest.raises(Exception, match=r"lingon\.Embed: the driver of the card cannot be loaded: .*missing\.so"):
        session_of(card, EMBED, EMBED.arrays())


def test_a_session_for_cards_alone_is_refused_on_the_cpu(card: EmulatedCard):
    """RegisterCustomOps adds the operators for CUDA, which this session does not have."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(runtime.LIBRARY))
    graph = node_graph("Embed", EMBED.arrays(), EMBED.outputs, **EMBED.attributes)
    with pytest.raises(Exception, match="Embed"):
        ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((b"embed", b"pppppiff", 4, 0), "passes pppppifi to embed, whose image takes pppppiff"),
        ((b"sample", b"pp", 4, 0), "has no operator that launches sample"),
        ((b"embed", b"pppppifi", 33, 0), "got an image of embed with 5 bytes, 33 warps and 0 bytes of shared memory"),
        ((b"embed", b"pppppifi", 4, -1), "got an image of embed with 5 bytes, 4 warps and -1 bytes of shared memory"),
    ],
)
def test_an_image_that_the_host_code_does_not_fit_is_refused(
    card: EmulatedCard, values: tuple[bytes, bytes, int, int], message: str
):
    library = runtime.library()
    assert library is not None
    name, parameters, warps, shared = values
    assert library.lingon_card_add_kernel(name, b"image", 5, parameters, warps, shared) == 1
    assert library.lingon_card_error().decode() == message
    assert library.lingon_card_add_kernel(b"embed", b"image", 5, b"pppppifi", 4, 0) == 0
    assert library.lingon_card_error() == b""


def test_the_variable_that_names_the_driver_is_restored():
    before = os.environ.get("LINGON_CUDA_DRIVER")
    with emulated_card(compute=False):
        assert os.environ["LINGON_CUDA_DRIVER"].endswith("libcuda.so")
    assert os.environ.get("LINGON_CUDA_DRIVER") == before
