from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from lingon.text import BOS, FORBIDDEN, PAD
from lingon.training.batches import pad
from lingon.training.model_settings import PRESETS, TransformerSettings
from lingon.training.models.attention import (
    KeyValue,
    QueryNormProducts,
    attend,
    attention_weights,
    visible_positions,
)
from lingon.training.models.layers import Dropout, Embedding, FeedForward, SinusoidForm, norm_of, sinusoids
from lingon.training.models.transformer import DecoderLayer, EncoderLayer, Transformer
from tests.support.random_models import with_noise
from tests.support.training_runs import VOCAB, tiny_model, tiny_settings

SHAPES: list[dict[str, Any]] = [
    {"norm": norm, "positions": positions} for norm in ("post", "pre") for positions in ("sinusoidal", "learned")
]
SHAPES += [{"norm": norm, "query_norm": True} for norm in ("pre", "both")]
SHAPES += [
    {"norm": "sandwich", "norm_kind": "rms", "attention_softcap": 2.0, "output_softcap": 3.0},
    {"positions": "rotary", "encoder_window": 2, "decoder_window": 2, "full_attention_every": 2},
]


def ids(*shape: int) -> Tensor:
    return torch.randint(4, VOCAB, shape, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("settings", SHAPES)
def test_decoding_step_by_step_gives_the_logits_of_decoding_at_once(settings: dict[str, Any]) -> None:
    model, lengths, target = tiny_model(**settings), torch.tensor([6, 3, 1]), ids(3, 9)
    memory = model.encode(ids(3, 6), lengths)
    expected, past = model.decode(target, memory), model.start(memory)
    for step in range(target.size(1)):
        logits, past = model.decode_step(target[:, step], past, memory)
        assert_close(logits, expected[:, step], rtol=1e-5, atol=1e-5)
        assert past[0].key.shape == (3, 2, step + 1, 16)


def test_the_causal_mask_hides_the_future() -> None:
    model, source, lengths, target = tiny_model(), ids(2, 5), torch.tensor([5, 4]), ids(2, 8)
    expected = model(source, lengths, target)
    for seen in range(1, 8):
        changed = target.clone()
        changed[:, seen:] = (changed[:, seen:] + 5) % VOCAB
        logits = model(source, lengths, changed)
        assert_close(logits[:, :seen], expected[:, :seen])
        assert not torch.allclose(logits[:, seen], expected[:, seen])


@pytest.mark.parametrize("settings", SHAPES)
def test_padding_changes_no_logits(settings: dict[str, Any]) -> None:
    model, source, target = tiny_model(**settings), ids(1, 5), ids(1, 4)
    expected = model(source, torch.tensor([5]), target)
    for wider in (6, 12, 20):
        padded = functional.pad(source, (0, wider - 5), value=PAD)
        longer = functional.pad(target, (0, 3), value=PAD)
        assert_close(model(padded, torch.tensor([5]), longer)[:, :4], expected, rtol=1e-5, atol=1e-5)


def test_the_ids_in_the_padding_change_nothing() -> None:
    model, target, lengths = tiny_model(), ids(1, 4), torch.tensor([5])
    one, other = ids(1, 9), ids(1, 9)
    other[:, 5:] = 4 + (other[:, 5:] + 3) % 15
    assert torch.equal(model(one, lengths, target), model(other, lengths, target))


def test_other_rows_of_the_batch_and_their_order_change_no_logits() -> None:
    model = tiny_model()
    sources, targets = [ids(12)[:n].tolist() for n in (3, 12, 7, 1)], ids(4, 6)
    lengths = torch.tensor([len(source) for source in sources])
    together = model(pad(sources), lengths, targets)
    order = torch.tensor([2, 0, 3, 1])
    moved = model(pad([sources[row] for row in order]), lengths[order], targets[order])
    assert_close(moved, together[order], rtol=1e-5, atol=1e-5)
    for row, source in enumerate(sources):
        alone = model(torch.tensor([source]), lengths[row : row + 1], targets[row : row + 1])
        assert_close(alone[0], together[row], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("masked", ["nothing", "padding", "future"])
def test_attention_is_the_formula_of_equation_1(masked: str) -> None:
    torch.manual_seed(3)
    query, key, value = torch.randn(3, 2, 4, 5, 8).unbind()
    lengths = torch.tensor([5, 3])
    seen = {
        "nothing": torch.ones(2, 1, 5, 5, dtype=torch.bool),
        "padding": visible_positions(lengths, 5),
        "future": torch.ones(5, 5).tril().bool()[None, None],
    }[masked]
    weights = (query @ key.transpose(-2, -1) / math.sqrt(8)).masked_fill(~seen, -math.inf).softmax(-1)
    expected = (weights @ value).transpose(1, 2).reshape(2, 5, 32)
    mask = visible_positions(lengths, 5) if masked == "padding" else None
    assert_close(attend(query, KeyValue(key, value), mask, causal=masked == "future"), expected)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_mixes_the_values_by_its_weights(causal: bool) -> None:
    query, key, value = torch.randn(3, 2, 4, 5, 8).unbind(0)
    visible = None if causal else visible_positions(torch.tensor([5, 3]), 5)
    weights = attention_weights(query, key, visible, causal=causal)
    mixed = (weights @ value).transpose(1, 2).flatten(2)
    assert_close(mixed, attend(query, KeyValue(key, value), visible, causal=causal))


def test_heads_attend_to_their_own_slices_of_the_projections() -> None:
    model, hidden = tiny_model(), torch.randn(2, 5, 32)
    attention = model.encoder[0].attention
    rows = functional.linear(hidden, attention.qkv.weight, attention.qkv.bias)
    query, key, value = rows.split(32, dim=-1)
    heads = []
    for head in range(2):
        own = slice(16 * head, 16 * head + 16)
        scores = query[..., own] @ key[..., own].transpose(1, 2) / math.sqrt(16)
        heads.append(scores.softmax(-1) @ value[..., own])
    expected = functional.linear(torch.cat(heads, -1), attention.output.weight, attention.output.bias)
    assert_close(attention(hidden), expected)


def test_sinusoids_are_the_formula_of_section_3_5() -> None:
    table = sinusoids(50, 12)
    for position in range(50):
        for i in range(6):
            angle = position / 10000 ** (2 * i / 12)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize(("form", "widest"), [("halves", 12), ("inclusive-halves", 10)])
def test_halves_have_all_sines_before_all_cosines(form: SinusoidForm, widest: int) -> None:
    """Inclusive rates end with 1 / 10000 itself: that of i = 5 of 12 dimensions is 10000 ** (-10 / 10)."""
    table = sinusoids(50, 12, form, first=2)
    for row in range(50):
        for i in range(6):
            angle = (row + 2) / 10000 ** (2 * i / widest)
            assert table[row, i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[row, 6 + i].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("shift", [1, 7, 40])
def test_the_encoding_of_a_position_shifted_by_k_is_a_rotation_of_each_pair(shift: int) -> None:
    """Section 3.5: PE(pos + k) is a linear function of PE(pos), here a rotation by k / 10000 ** (2i / dim)."""
    dim, positions = 32, 60
    pairs = sinusoids(positions + shift, dim).unflatten(-1, (dim // 2, 2))
    angle = shift / 10000 ** (2 * torch.arange(dim // 2) / dim)
    rotation = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()], -1).unflatten(-1, (2, 2))
    assert_close(pairs[shift:], torch.einsum("iab,pib->pia", rotation, pairs[:positions]), rtol=0, atol=1e-5)


def test_an_embedding_is_scaled_and_added_to_its_position() -> None:
    embedding = Embedding(tiny_settings(), VOCAB).eval()
    expected = embedding.pieces.weight[[5, 9]] * math.sqrt(32) + sinusoids(24, 32)[3:5]
    assert_close(embedding(torch.tensor([[5, 9]]), 3)[0], expected)


def test_an_embedding_may_have_a_norm_no_scale_and_later_positions() -> None:
    settings = tiny_settings(scale_embedding=False, embedding_norm=True, norm_epsilon=0.5, first_position=2)
    embedding = with_noise(Embedding(settings, VOCAB).eval())
    total = embedding.pieces.weight[[5, 9]] + sinusoids(24, 32)[5:7]
    assert isinstance(embedding.norm, nn.LayerNorm)
    assert_close(embedding(torch.tensor([[5, 9]]), 3)[0], embedding.norm(total))
    assert embedding.norm.eps == 0.5


def test_a_root_mean_square_norm_is_its_formula() -> None:
    """Zhang and Sennrich (2019), equation 4: no mean is subtracted, and there is no bias."""
    norm, hidden = with_noise(norm_of(tiny_settings(norm_kind="rms", norm_epsilon=0.1))), torch.randn(2, 3, 32)
    mean_square = hidden.square().mean(-1, keepdim=True)
    assert_close(norm(hidden), hidden / (mean_square + 0.1).sqrt() * norm.weight)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_post_norm_is_the_norm_of_the_sum() -> None:
    layer, hidden, visible = EncoderLayer(tiny_settings(norm="post")).eval(), torch.randn(2, 4, 32), _all_visible(4)
    middle = layer.around_attention.norm(hidden + layer.attention(hidden, visible))
    expected = layer.around_feed_forward.norm(middle + layer.feed_forward(middle))
    assert_close(layer(hidden, visible), expected)


def test_pre_norm_is_the_sum_with_the_sublayer_of_the_norm() -> None:
    layer, hidden, visible = EncoderLayer(tiny_settings(norm="pre")).eval(), torch.randn(2, 4, 32), _all_visible(4)
    middle = hidden + layer.attention(layer.around_attention.norm(hidden), visible)
    expected = middle + layer.feed_forward(layer.around_feed_forward.norm(middle))
    assert_close(layer(hidden, visible), expected)


def test_both_norms_are_the_norm_of_the_sum_with_the_sublayer_of_the_norm() -> None:
    layer, hidden, visible = EncoderLayer(tiny_settings(norm="both")), torch.randn(2, 4, 32), _all_visible(4)
    with_noise(layer)
    first, second = layer.around_attention, layer.around_feed_forward
    middle = first.norm_after(hidden + layer.attention(first.norm(hidden), visible))
    assert_close(layer(hidden, visible), second.norm_after(middle + layer.feed_forward(second.norm(middle))))


def test_sandwich_norms_are_the_sum_with_the_norm_of_the_sublayer_of_the_norm() -> None:
    layer, hidden, visible = EncoderLayer(tiny_settings(norm="sandwich")), torch.randn(2, 4, 32), _all_visible(4)
    with_noise(layer)
    first, second = layer.around_attention, layer.around_feed_forward
    middle = hidden + first.norm_after(layer.attention(first.norm(hidden), visible))
    assert_close(layer(hidden, visible), middle + second.norm_after(layer.feed_forward(second.norm(middle))))


@pytest.mark.parametrize("norm", ["pre", "both"])
def test_a_norm_of_the_queries_leaves_keys_and_values_as_they_are(norm: str) -> None:
    settings = tiny_settings(norm=norm, query_norm=True)
    layer, hidden, visible = EncoderLayer(settings), torch.randn(2, 4, 32), _all_visible(4)
    with_noise(layer)
    products = layer.attention.qkv
    assert isinstance(products, QueryNormProducts)
    query = products.query(products.norm(hidden)).unflatten(-1, (2, 16)).transpose(1, 2)
    memory = KeyValue(*products.key_value(hidden).unflatten(-1, (2, 2, 16)).permute(2, 0, 3, 1, 4))
    middle = hidden + layer.attention.output(attend(query, memory, visible))
    if norm == "both":
        middle = layer.around_attention.norm(middle)
    around = layer.around_feed_forward
    expected = middle + layer.feed_forward(around.norm(middle))
    assert_close(layer(hidden, visible), around.norm_after(expected) if norm == "both" else expected)


@pytest.mark.parametrize("norm", ["post", "pre", "both", "sandwich"])
@pytest.mark.parametrize("final", [None, True, False])
def test_the_final_norm_is_that_of_pre_norm_unless_it_is_set(norm: str, final: bool | None) -> None:
    model = tiny_model(norm=norm, **({} if final is None else {"final_norm": final}))
    wanted = norm in ("pre", "sandwich") if final is None else final
    for each in (model.encoder_norm, model.decoder_norm):
        assert isinstance(each, nn.LayerNorm) == wanted


def test_a_decoder_layer_attends_to_itself_then_to_the_encoder_then_feeds_forward() -> None:
    layer, hidden, visible = DecoderLayer(tiny_settings(norm="post")).eval(), torch.randn(2, 3, 32), _all_visible(4)
    memory = layer.cross.project_key_value(torch.randn(2, 4, 32))
    first = layer.around_attention.norm(hidden + layer.attention(hidden, causal=True))
    second = layer.around_cross.norm(first + layer.cross(first, memory, visible))
    expected = layer.around_feed_forward.norm(second + layer.feed_forward(second))
    assert_close(layer(hidden, memory, visible), expected)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu-tanh", "quick-gelu", "silu"])
def test_feed_forward_is_the_formula_of_equation_2(activation: str) -> None:
    block, hidden = FeedForward(tiny_settings(activation=activation)), torch.randn(2, 3, 32)
    inner = hidden @ block.inner.weight.T + block.inner.bias
    active = {
        "relu": inner.clamp(min=0),
        "gelu": inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2))),
        "gelu-tanh": inner * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3))),
        "quick-gelu": inner * torch.sigmoid(1.702 * inner),
        "silu": inner * torch.sigmoid(inner),
    }[activation]
    assert_close(block(hidden), active @ block.outer.weight.T + block.outer.bias)


def test_a_gated_feed_forward_layer_is_its_formula() -> None:
    """Shazeer (2020), equation 6: (act(x W) * x V) W2, without biases."""
    block, hidden = FeedForward(tiny_settings(gated=True, bias=False, activation="silu")), torch.randn(2, 3, 32)
    first, second = (hidden @ matrix.T for matrix in block.inner.weight.split(64))
    assert_close(block(hidden), (first * torch.sigmoid(first) * second) @ block.outer.weight.T)
    assert block.inner.bias is block.outer.bias is None


def test_heads_may_be_wider_or_narrower_than_their_share_of_the_width() -> None:
    model = tiny_model(head_dim=24, bias=False, output_bias=True)
    assert model.settings.attention_dim == 48
    assert model.encoder[0].attention.qkv.weight.shape == (144, 32)
    assert model.decoder[0].cross.output.weight.shape == (32, 48)
    biased = [name for name, module in model.named_modules() if getattr(module, "bias", None) is not None]
    assert "output" in biased
    assert all(name == "output" or name.endswith("norm") for name in biased)


@pytest.mark.parametrize(("tie", "matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_tied_embeddings_are_one_tensor(tie: str, matrices: int) -> None:
    model = tiny_model(tie=tie)
    weights = (model.source_embedding.pieces.weight, model.target_embedding.pieces.weight, model.output.weight)
    assert len({weight.data_ptr() for weight in weights}) == matrices


@pytest.mark.parametrize("preset", PRESETS)
def test_a_head_is_64_wide_in_every_preset_but_tiny(preset: str) -> None:
    assert TransformerSettings.model_validate({"preset": preset}).head_dim == (16 if preset == "tiny" else 64)


@pytest.mark.parametrize(("preset", "millions"), [("small", 6), ("base", 44), ("big", 176), ("deep-encoder", 42)])
def test_a_preset_has_the_weights_of_the_paper_besides_its_embeddings(preset: str, millions: int) -> None:
    settings = TransformerSettings.model_validate({"preset": preset})
    with torch.device("meta"):
        weights = sum(weight.numel() for weight in Transformer(settings, 1000, 1000).parameters())
    dim, ffn = settings.dim, settings.ffn
    attention, feed_forward, norm = 4 * (dim * dim + dim), 2 * dim * ffn + ffn + dim, 2 * dim
    encoder = settings.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = settings.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    assert weights == encoder + decoder + 1000 * dim
    assert round((encoder + decoder) / 1e6) == millions


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.25, 0.9])
def test_dropout_drops_its_rate_and_keeps_the_mean(rate: float) -> None:
    """The bounds are five standard deviations, which a rate rounded to a 256th (0.1 to 0.1016) exceeds."""
    torch.manual_seed(1)
    dropped = Dropout(rate).train()(torch.ones(2000, 1000))
    deviation = 5 * math.sqrt(rate * (1 - rate) / dropped.numel())
    assert (dropped == 0).double().mean().item() == pytest.approx(rate, abs=deviation)
    assert dropped.double().mean().item() == pytest.approx(1.0, abs=deviation / (1 - rate))
    assert dropped.unique().numel() == 2


def test_dropout_is_reproducible_and_off_at_inference() -> None:
    layer, hidden = Dropout(0.5), torch.randn(13, 7)
    assert layer.eval()(hidden) is hidden
    torch.manual_seed(5)
    first = layer.train()(hidden)
    again = layer(hidden)
    torch.manual_seed(5)
    assert torch.equal(layer(hidden), first)
    assert not torch.equal(again, first)


def test_every_sublayer_output_and_the_embedding_sum_are_dropped_out() -> None:
    model = tiny_model(dropout=0.5)
    around = [module for module in model.modules() if isinstance(module, Dropout)]
    assert len(around) == 2 + 2 * 2 + 2 * 3  # embeddings; two and three sublayers in two layers each


def test_forbidden_pieces_have_probability_zero() -> None:
    model = tiny_model()
    log_probs = model.log_probs(torch.randn(3, VOCAB))
    assert (log_probs[:, list(FORBIDDEN)].exp() == 0).all()
    assert_close(log_probs.exp().sum(-1), torch.ones(3))


def test_a_step_reads_its_position_from_the_past() -> None:
    model, memory = tiny_model(), tiny_model().encode(ids(1, 4), torch.tensor([4]))
    begin = torch.tensor([BOS])
    first, past = model.decode_step(begin, model.start(memory), memory)
    second, _ = model.decode_step(begin, past, memory)
    assert not torch.allclose(first, second)


def _all_visible(length: int) -> Tensor:
    return visible_positions(torch.tensor([length, length]), length)
