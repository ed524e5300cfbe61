"""The operators of a decoder step on the CPU: each variant is right, and one without a kernel says so."""

from __future__ import annotations

import pytest

from lingon.bench.results_file import command
from lingon.bench.tools.engine.operators import attention, others
from lingon.bench.tools.engine.operators.__main__ import reasons_of, table_of
from lingon.bench.tools.engine.operators.case import Case, measure
from lingon.serving.runtime.device import CPU

CASES = [
    attention.self_attention(2, 64, 3, 16, "fp16"),
    *attention.cross_attention(3, 16, 1, "fp16"),
    others.matrix_product(2, 32, 64, "fp16"),
    *others.top_k(3, 640, 1),
    *others.top_k(3, 640, 8),
    *others.scatter(3),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.variant}, {case.sizes}")
def test_a_variant_computes_what_numpy_computes_and_is_timed(case: Case):
    row = measure(case, CPU)
    assert row["reason"] == ""
    assert row["error"] < 5e-3
    assert row["us"] > 0


def test_a_variant_without_a_kernel_says_so_and_the_others_are_measured():
    rows = [measure(case, CPU) for case in (attention.self_attention(2, 64, 1, 16, "bf16"), CASES[0])]
    assert "Could not find an implementation for GroupQueryAttention" in rows[0]["reason"]
    assert rows[1]["reason"] == ""
    assert next(iter(table_of(rows).columns[4].cells)) == "no kernel"
    assert reasons_of(rows) == [f"GroupQueryAttention, bf16: {rows[0]['reason']}"]


def test_a_variant_that_fails_when_it_runs_is_a_row_too():
    """On the CPU, several queries of several sentences are not taken."""
    (case,) = (each for each in attention.cross_attention(3, 16, 4, "fp16") if "causal 0" in each.variant)
    row = measure(case, CPU)
    assert "batch_size must be 1" in row["reason"]
    assert list(table_of([row]).columns[4].cells) == ["failed"]


def test_the_command_of_a_tool_that_is_a_package_is_named():
    arguments = ["/clone/lingon/bench/tools/engine/operators/__main__.py", "--device", "cpu"]
    assert command(arguments) == "python -m lingon.bench.tools.engine.operators --device cpu"
