"""The options of the Transformer: positions, a window and linear attention in the encoder, additive scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lingon.text import BOS
from lingon.training.models import attention, layers
from lingon.training.models.attention import within_window
from tests.support.mutants import SourceMutant
from tests.support.random_models import ids, random_system, system_settings
from tests.support.training_runs import tiny_model, tiny_settings

ORDERED = torch.tensor([0, 1, 2, 3, 4, 5])
SHUFFLED = torch.tensor([3, 0, 5, 1, 4, 2])


def check_rotation(module: ModuleType) -> None:
    """As complex numbers: pair i at position p is multiplied by exp(i p / 10000^(2i / head_dim))."""
    heads = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(1))
    found = module.rotate(heads, 7).numpy()
    pairs = heads.double().numpy()[..., 0::2] + 1j * heads.double().numpy()[..., 1::2]
    for position in range(5):
        for pair in range(4):
            expected = pairs[:, :, position, pair] * np.exp(1j * (7 + position) / 10000 ** (2 * pair / 8))
            near = {"rtol": 1e-4, "atol": 1e-5}
            np.testing.assert_allclose(found[:, :, position, 2 * pair], expected.real, **near)
            np.testing.assert_allclose(found[:, :, position, 2 * pair + 1], expected.imag, **near)


def check_additive(module: ModuleType) -> None:
    torch.manual_seed(2)
    heads = module.AdditiveHeads(system_settings("transformer", dim=8, heads=2, score="additive"))
    query, key, value = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    visible = torch.arange(5) < torch.tensor([5, 3])[:, None, None, None]
    found = heads(query, attention.KeyValue(key, value), visible).detach().numpy()
    w, q, k, v = (each.detach().double().numpy() for each in (heads.weight, query, key, value))
    for row, length in enumerate((5, 3)):
        for head in range(2):
            for t in range(3):
                shares = np.exp([w[head] @ np.tanh(q[row, head, t] + k[row, head, j]) for j in range(length)])
                expected = sum(share * v[row, head, j] for j, share in enumerate(shares / shares.sum()))
                mixed = found[row, t, 4 * head : 4 * head + 4]
                np.testing.assert_allclose(mixed, expected, rtol=1e-4, atol=1e-5)


def check_linear(module: ModuleType) -> None:
    """Katharopoulos et al. (2020), equation 4 with phi(x) = elu(x) + 1: the values and the weights, key by key."""
    torch.manual_seed(6)
    query, key, value = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    visible, lengths = torch.arange(5) < torch.tensor([5, 3])[:, None, None, None], (5, 3)
    mixed = module.attend_linearly(query, attention.KeyValue(key, value), visible).numpy()
    weights = module.linear_attention_weights(query, key, visible).numpy()
    q, k, v = (each.double().numpy() for each in (query, key, value))
    phi_q, phi_k = (np.where(each > 0, each + 1, np.exp(each)) for each in (q, k))
    for row, head, i in np.ndindex(2, 2, 3):
        similarity = [phi_q[row, head, i] @ phi_k[row, head, j] for j in range(lengths[row])]
        expected = np.zeros(5)
        expected[: lengths[row]] = np.array(similarity) / sum(similarity)
        near = {"rtol": 1e-4, "atol": 1e-6}
        np.testing.assert_allclose(weights[row, head, i], expected, **near)
        np.testing.assert_allclose(mixed[row, i, 4 * head : 4 * head + 4], expected @ v[row, head], **near)


def check_ssru(module: ModuleType) -> None:
    """Kim et al. (2019), section 3.1, token by token; the state after each step is c."""
    torch.manual_seed(4)
    cell = module.SSRU(system_settings("transformer", dim=8, heads=2, decoder_cell="ssru"))
    hidden = torch.randn(2, 5, 8)
    found, past = cell(hidden).detach().numpy(), cell.start(2)
    weight, bias, inputs = (each.detach().double().numpy() for each in (cell.gates.weight, cell.gates.bias, hidden))
    c, near = np.zeros((2, 8)), {"rtol": 1e-4, "atol": 1e-5}
    for t in range(5):
        forget = 1 / (1 + np.exp(-(inputs[:, t] @ weight[:8].T + bias[:8])))
        c = forget * c + (1 - forget) * (inputs[:, t] @ weight[8:].T + bias[8:])
        np.testing.assert_allclose(found[:, t], np.maximum(c, 0), **near)
        said, past = cell.step(hidden[:, t : t + 1], past)
        np.testing.assert_allclose(said.detach().numpy()[:, 0], np.maximum(c, 0), **near)
        np.testing.assert_allclose(past.cell.detach().numpy(), c, **near)
        assert past.length.tolist() == [t + 1, t + 1]


def check_relative(module: ModuleType) -> None:
    """The buckets as Raffel et al. (2020) describe them, with 8 buckets and distances that differ up to 6.

    On both sides: 4 buckets each, of the distances 0, 1, 2 to 3 and 4 or more. In the decoder: 8 of what is behind.
    """
    settings = system_settings("transformer", positions="relative", relative_buckets=8, relative_distance=6)
    both = module.RelativeBias(settings, both_sides=True)
    distances = torch.tensor([-20, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 20])
    assert both.buckets(distances).tolist() == [3, 3, 3, 2, 2, 1, 0, 5, 6, 6, 7, 7, 7]
    behind = module.RelativeBias(settings, both_sides=False)
    assert behind.buckets(distances).tolist() == [7, 7, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0]
    bias = behind.masked(module.causal_window(5, 0, torch.device("cpu")))
    assert bias.shape == (1, 2, 5, 5)
    for query, key in np.ndindex(5, 5):
        expected = behind.weight[query - key] if key <= query else torch.full((2,), -np.inf)
        assert_close(bias[0, :, query, key], expected.detach() if key <= query else expected, check_stride=False)


def test_a_rotation_is_its_formula() -> None:
    check_rotation(attention)


def test_additive_heads_are_their_formula() -> None:
    check_additive(attention)


def test_linear_attention_is_its_formula() -> None:
    check_linear(attention)


def test_relative_positions_are_their_formula() -> None:
    check_relative(attention)


@pytest.mark.parametrize(
    ("after", "right", "wrong"),
    [
        ("def buckets", "(distances > 0)", "(distances < 0)"),
        ("def buckets", "len(self.weight) // 2 if", "len(self.weight) if"),
        ("def buckets", "count - exact", "count"),
        ("def buckets", "count - 1", "count - 2"),
        ("def buckets", "far < exact", "far > exact"),
        ("def buckets", "(-distances)", "(distances)"),
        ("def causal", ".tril()", ".triu()"),
        ("class RelativeBias", "keys - queries[:, None]", "queries[:, None] - keys"),
    ],
)
def test_a_mistake_in_relative_positions_is_caught(after: str, right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check_relative(SourceMutant("attention", after, right, wrong).load())


def test_an_ssru_is_its_formula() -> None:
    check_ssru(layers)


@pytest.mark.parametrize(
    ("after", "right", "wrong"),
    [
        ("def _gated", "torch.sigmoid(gate)", "torch.tanh(gate)"),
        ("def _gated", "(1 - keep)", "keep"),
        ("def _gated", "gate, value =", "value, gate ="),
        ("class SSRU", "keep[:, position] * cell", "cell"),
        ("class SSRU", ".relu()", ""),
        ("class SSRU", "past.length + 1", "past.length"),
        ("class SSRU", "keep[:, 0] * past.cell", "past.cell"),
    ],
)
def test_a_mistake_in_the_ssru_is_caught(after: str, right: str, wrong: str) -> None:
    with pytest.raises(AssertionError):
        check_ssru(SourceMutant("layers", after, right, wrong).load())


@pytest.mark.parametrize(
    ("check", "after", "right", "wrong"),
    [
        (check_rotation, "def rotate", "left * cosine - right * sine", "left * cosine + right * sine"),
        (check_rotation, "def rotate", "(-pairs /", "(pairs /"),
        (check_rotation, "def rotate", "torch.arange(first, first + heads", "torch.arange(0, heads"),
        (check_additive, "class AdditiveHeads", "torch.tanh(", "("),
        (check_additive, "class AdditiveHeads", "+ key[:, :, None]", "- key[:, :, None]"),
        (check_additive, "class AdditiveHeads", "self.weight[:, None, :, None]", "-self.weight[:, None, :, None]"),
        (check_additive, "def _softmax", "if visible is not None", "if False"),
        (check_linear, "def feature_map", "functional.elu(heads) + 1", "functional.elu(heads) + 2"),
        (check_linear, "def feature_map", "functional.elu(", "functional.relu("),
        (check_linear, "def attend_linearly", "feature_map(query.to(wide))", "query.to(wide)"),
        (check_linear, "def attend_linearly", "queries @ state /", "queries @ state *"),
        (check_linear, "def attend_linearly", "keys.sum(dim=2)", "keys.mean(dim=2)"),
        (check_linear, "def linear_attention_weights", "products.sum(dim=-1", "products.sum(dim=-2"),
        (check_linear, "def _visible_features", "visible is None", "True"),
    ],
)
def test_a_mistake_in_a_formula_is_caught(
    check: Callable[[ModuleType], None], after: str, right: str, wrong: str
) -> None:
    with pytest.raises(AssertionError):
        check(SourceMutant("attention", after, right, wrong).load())


@pytest.mark.parametrize("shift", [1, 9])
def test_the_product_of_rotated_heads_depends_on_the_difference_of_positions_alone(shift: int) -> None:
    query, key = torch.randn(2, 1, 2, 6, 16, generator=torch.Generator().manual_seed(3))
    products = attention.rotate(query) @ attention.rotate(key).transpose(2, 3)
    moved = attention.rotate(query, shift) @ attention.rotate(key, shift).transpose(2, 3)
    assert_close(moved, products, rtol=1e-4, atol=1e-5)
    apart = attention.rotate(query, shift) @ attention.rotate(key).transpose(2, 3)
    assert not torch.allclose(apart, products, atol=1e-2)


@pytest.mark.parametrize(("positions", "differ"), [("rotary", True), ("none", False)])
def test_rotary_attention_rotates_queries_and_keys_by_their_positions(positions: str, differ: bool) -> None:
    torch.manual_seed(5)
    layer = attention.SelfAttention(system_settings("transformer", positions=positions))
    hidden = torch.randn(2, 6, 32)
    products = []
    for first in (0, 9):
        query, present = layer.project(hidden, first)
        products.append(query @ present.key.transpose(2, 3))
    assert_close(products[1], products[0], rtol=1e-4, atol=1e-4)
    moved, _ = layer.project(hidden, 9)
    _, here = layer.project(hidden, 0)
    assert torch.allclose(moved @ here.key.transpose(2, 3), products[0], atol=1e-2) is not differ


@pytest.mark.parametrize(("name", "ignored"), [("transformer none", True), ("transformer rotary", False)])
def test_without_positions_the_order_of_the_source_is_not_seen(name: str, ignored: bool) -> None:
    model, source, target, lengths = random_system(name), ids(1, 6), ids(1, 4), torch.tensor([6])
    ordered = model(source[:, ORDERED], lengths, target)
    shuffled = model(source[:, SHUFFLED], lengths, target)
    assert torch.allclose(shuffled, ordered, rtol=1e-4, atol=1e-4) is ignored


def test_an_encoder_position_sees_its_window_and_nothing_else() -> None:
    model = tiny_model(encoder_window=2, encoder_layers=1)
    source, lengths = ids(1, 9), torch.tensor([9])
    before = model.encode(source, lengths).layers[0].key
    for changed in range(9):
        other = source.clone()
        other[0, changed] = 4 + (source[0, changed] - 3) % 15
        differs = (model.encode(other, lengths).layers[0].key != before).any(-1).any(1)[0]
        assert differs.tolist() == [abs(position - changed) <= 2 for position in range(9)]


def test_a_decoder_position_sees_its_window_and_nothing_else() -> None:
    model = tiny_model(decoder_window=2, decoder_layers=1)
    source, lengths, target = ids(1, 5), torch.tensor([5]), ids(1, 9)
    before = model(source, lengths, target)
    for changed in range(9):
        other = target.clone()
        other[0, changed] = 4 + (target[0, changed] - 3) % 15
        differs = (model(source, lengths, other) != before).any(-1)[0]
        assert differs.tolist() == [0 <= position - changed <= 2 for position in range(9)]


def test_of_so_many_layers_the_last_one_has_no_window() -> None:
    settings = tiny_settings(encoder_layers=5, decoder_layers=3, encoder_window=4, full_attention_every=2)
    assert settings.windows("encoder") == (4, 0, 4, 0, 4)
    assert settings.windows("decoder") == (0, 0, 0)
    model = tiny_model(encoder_layers=2, encoder_window=2, full_attention_every=2)
    assert [layer.attention.window for layer in model.encoder] == [2, 0]


def test_capped_scores_are_those_of_the_formula_and_within_the_bound() -> None:
    torch.manual_seed(7)
    heads, bound = attention.CappedHeads(1.5), 1.5
    query, key, value = 4 * torch.randn(3, 2, 4, 6, 8)
    scores = bound * torch.tanh(query @ key.transpose(2, 3) / math.sqrt(8) / bound)
    hidden = torch.ones(6, 6).triu(1).bool()
    expected = scores.masked_fill(hidden, -math.inf).softmax(-1)
    assert_close(heads.weights(query, key, causal=True), expected)
    mixed = heads(query, attention.KeyValue(key, value), causal=True)
    assert_close(mixed, (expected @ value).transpose(1, 2).flatten(2))
    assert float(expected[..., -1, :].amin()) > math.exp(-2 * bound) / 6


def test_capped_logits_are_within_the_bound_and_pieces_that_are_never_generated_have_no_probability() -> None:
    model = tiny_model(output_softcap=0.5)
    logits = model(ids(1, 5), torch.tensor([5]), ids(1, 4)).detach()
    plain = tiny_model()
    plain.load_state_dict(model.state_dict())
    assert_close(logits, 0.5 * torch.tanh(plain(ids(1, 5), torch.tensor([5]), ids(1, 4)) / 0.5))
    assert float(model.log_probs(logits)[..., BOS].exp().max()) == 0


def test_linear_attention_mixes_by_its_weights_and_is_finite_for_features_of_almost_nothing() -> None:
    torch.manual_seed(7)
    heads = attention.LinearHeads()
    query, key, value = torch.randn(3, 2, 4, 6, 8)
    for shift in (0, -100):
        mixed = heads(query + shift, attention.KeyValue(key + shift, value))
        weights = heads.weights(query + shift, key + shift)
        assert mixed.isfinite().all()
        assert_close(mixed, (weights @ value).transpose(1, 2).flatten(2))


def test_linear_attention_keeps_no_matrix_of_all_pairs_of_positions() -> None:
    """No tensor that the gradients need grows with the square of the length."""
    sizes = []
    layer = tiny_model(encoder_attention="linear").encoder[0].attention
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: sizes.append(kept.numel()) or kept, lambda kept: kept):
        layer(torch.randn(1, 500, 32), torch.ones(1, 1, 1, 500, dtype=torch.bool))
    assert 0 < max(sizes) <= 3 * 500 * 32


def test_only_the_encoder_attends_linearly() -> None:
    model = tiny_model(encoder_attention="linear")
    assert {type(layer.attention.mix) for layer in model.encoder} == {attention.LinearHeads}
    assert {type(each.mix) for layer in model.decoder for each in (layer.attention, layer.cross)} == {
        attention.DotProductHeads
    }


def test_a_padded_position_beyond_every_window_sees_itself() -> None:
    """A softmax over no key would be NaN, and NaN times a weight of 0 is NaN."""
    seen: Tensor = within_window(torch.arange(8)[None, None, None] < 2, 1)
    assert seen[0, 0].any(-1).all()
    assert seen[0, 0, 7].tolist() == [False] * 7 + [True]
    model = random_system("transformer window")
    assert model(ids(1, 20), torch.tensor([2]), ids(1, 3)).isfinite().all()
