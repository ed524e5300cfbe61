"""`lingon bench attention-cost`: the ways to mix, the formulas of all layers against counts, and the whole command."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lingon.bench.attention_cost import (
    FLOAT,
    LAYERS,
    CostOptions,
    FullyConnected,
    Layer,
    Recurrent,
    Size,
    WindowedSelfAttention,
    draw,
    draw_positions,
    fit_exponent,
    growth,
    kept_bytes,
    left_out_lines,
    measure,
    mix_by_matrix,
    mix_in_blocks,
    too_large,
)
from lingon.errors import SettingsError
from lingon.training.models.attention import KeyValue, attend, attend_linearly, visible_positions, within_window

SIZES = [Size(length=length, dim=16, radius=5, kernel=3) for length in (1, 8, 40, 67)]
by_kind = pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.name)
by_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size.length))


def heads(length: int, *, batch: int = 2, count: int = 3, dim: int = 8) -> tuple[torch.Tensor, KeyValue]:
    """A query with keys and values, in double precision."""
    torch.manual_seed(length)
    query, key, value = torch.randn(3, batch, count, length, dim, dtype=torch.float64)
    return query, KeyValue(key, value)


def hidden_of(size: Size) -> torch.Tensor:
    return torch.randn(1, size.length, size.dim)


@pytest.mark.parametrize(("length", "radius"), [(1, 1), (7, 1), (12, 4), (13, 4), (3, 8), (30, 7)])
def test_attention_in_blocks_equals_masked_full_attention_of_the_same_radius(length: int, radius: int) -> None:
    query, past = heads(length)
    window = within_window(visible_positions(torch.tensor([length, length]), length), radius)
    torch.testing.assert_close(mix_in_blocks(query, past, radius), attend(query, past, window))


def test_the_gradients_of_attention_in_blocks_are_those_of_masked_full_attention() -> None:
    """The last block has padded queries."""
    query, past = heads(13)
    leaves = [each.requires_grad_() for each in (query, *past)]
    window = within_window(visible_positions(torch.tensor([13, 13]), 13), 4)
    found = torch.autograd.grad(mix_in_blocks(query, past, 4).square().sum(), leaves)
    expected = torch.autograd.grad(attend(query, past, window).square().sum(), leaves)
    torch.testing.assert_close(found, expected)


def test_linear_attention_equals_the_direct_quadratic_form() -> None:
    """Equation 3 with the similarity phi(q) . phi(k), written out for each pair of positions."""
    query, past = heads(9)

    def phi(vectors: torch.Tensor) -> torch.Tensor:
        return torch.where(vectors > 0, vectors + 1, vectors.exp())

    similarity = torch.einsum("bhid,bhjd->bhij", phi(query), phi(past.key))
    expected = torch.einsum("bhij,bhjd->bihd", similarity / similarity.sum(-1, keepdim=True), past.value)
    torch.testing.assert_close(attend_linearly(query, past), expected.flatten(2))


def test_the_fused_kernel_and_the_matrix_mix_alike() -> None:
    query, past = heads(11)
    torch.testing.assert_close(mix_by_matrix(query, past), attend(query, past))


@by_kind
@by_size
def test_the_formula_of_the_operations_is_the_count_of_the_products(kind: type[Layer], size: Size) -> None:
    """The fused kernel has no count on the CPU; its plain form in torch has the same products."""
    layer, hidden = kind(size), hidden_of(size)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(hidden)
    assert 2 * kind.multiply_adds(size) == pytest.approx(counter.get_total_flops(), rel=0.02)


@by_kind
@by_size
def test_the_formula_of_the_memory_is_the_count_of_the_kept_bytes(kind: type[Layer], size: Size) -> None:
    assert kind.kept_bytes(size) == pytest.approx(kept_bytes(kind(size), hidden_of(size)), rel=0.02)


@by_kind
def test_the_formula_of_the_weights_is_their_number(kind: type[Layer]) -> None:
    assert kind.weights(SIZES[1]) == sum(weight.numel() for weight in kind(SIZES[1]).parameters())


@by_kind
def test_every_layer_returns_the_shape_of_its_input(kind: type[Layer]) -> None:
    size = SIZES[3]
    hidden = hidden_of(size).expand(2, -1, -1)
    assert kind(size)(hidden).shape == hidden.shape


@by_kind
@pytest.mark.parametrize("cost", ["time", "memory"])
def test_the_formulas_grow_as_their_orders_do(kind: type[Layer], cost: str) -> None:
    lengths = [2**power for power in (20, 22, 24)]  # Lower terms no longer count.
    formula = kind.multiply_adds if cost == "time" else kind.kept_bytes
    values = [formula(Size(length=length)) for length in lengths]
    assert fit_exponent(lengths, values) == pytest.approx(getattr(kind, cost).exponent, abs=0.01)


def test_windowed_attention_keeps_no_matrix_of_the_whole_length() -> None:
    long = Size(length=1000, dim=16, radius=5)
    assert kept_bytes(WindowedSelfAttention(long), hidden_of(long)) < FLOAT * long.length**2 / 4


def test_the_exponent_of_a_power_is_its_own_and_of_one_length_none() -> None:
    assert fit_exponent([16, 32, 128], [3 * length**1.5 for length in (16, 32, 128)]) == pytest.approx(1.5)
    assert fit_exponent([16], [1.0]) is None


def test_a_layer_that_is_too_large_has_rows_with_the_reason_at_all_longer_lengths() -> None:
    options = CostOptions(lengths=(8, 64, 32, 16), dim=16, rounds=1, shortest=0, memory=0.0005)
    rows = measure(options, lambda line: None)
    own = [row for row in rows if row["layer"] == FullyConnected.name]
    assert [(row["length"], row["reason"] is None) for row in own] == [(8, True), (16, True), (32, False), (64, False)]
    assert [row["median_ms"] is None for row in own] == [False, False, True, True]
    reason = "weights and activations at length 32 need 0.00098 GiB, more than 0.0005"
    assert left_out_lines(rows) == [f"not measured: fully connected at 32, 64 ({reason})"]
    assert too_large(FullyConnected, Size(length=16, dim=16), 0.0005) is None


def test_a_layer_that_is_too_slow_has_rows_with_the_reason() -> None:
    rows = measure(CostOptions(lengths=(8, 16), dim=16, rounds=1, shortest=0, slow=1e-9), lambda line: None)
    assert len(rows) == 2 * len(LAYERS)
    assert all("a call at length 8 takes" in row["reason"] and row["median_ms"] is None for row in rows)
    assert [each["time_measured"] for each in growth(rows)] == [None] * len(LAYERS)


def test_the_number_of_threads_is_as_before_after_a_measurement() -> None:
    before = torch.get_num_threads()
    measure(CostOptions(lengths=(4,), dim=4, rounds=1, shortest=0, threads=before + 1), lambda line: None)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lengths": ()}, "lengths must name at least 1 length, got none"),
        ({"lengths": (16, 0)}, "length must be at least 1, got 0"),
        ({"dim": 7}, "dim must be even, got 7"),
        ({"radius": 0}, "radius must be at least 1, got 0"),
        ({"kernel": 4}, "kernel must be odd, got 4"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"slow": 0.0}, "slow must be above 0, got 0.0"),
        ({"memory": math.nan}, "memory must be above 0, got nan"),
    ],
)
def test_a_setting_out_of_bounds_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^{message}$"):
        CostOptions(**values)  # type: ignore[arg-type]


def test_the_pictures_have_the_kind_that_their_names_say(tmp_path: Path) -> None:
    rows = measure(CostOptions(lengths=(4, 8), dim=4, rounds=1, shortest=0, memory=1e-5), lambda line: None)
    draw(rows, tmp_path / "cost.png")
    draw_positions(tmp_path / "positions.png", positions=8, dim=16)
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("cost.png", "positions.png"))


def test_the_quick_command_writes_all_rows_and_both_pictures(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lingon", "bench", "attention-cost", "--quick", "--dim", "8"]
    answer = subprocess.run([*command, "--results", tmp_path], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    (path,) = tmp_path.glob("*-attention-cost.json")
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["command"].startswith("lingon bench attention-cost --quick")
    assert {(row["layer"], row["length"]) for row in result["rows"]} == {
        (kind.name, length) for kind in LAYERS for length in (16, 32, 64)
    }
    assert all(len(row["runs_ms"]) == 2 and row["median_ms"] > 0 for row in result["rows"])
    assert [each["lengths"] for each in result["growth"]] == [[16, 32, 64]] * len(LAYERS)
    assert all(kind.name in answer.stdout for kind in (FullyConnected, Recurrent))
    assert "<svg" in path.with_suffix(".svg").read_text(encoding="utf-8")
    (positions,) = tmp_path.glob("*-positional-encoding.svg")
    assert "<svg" in positions.read_text(encoding="utf-8")
