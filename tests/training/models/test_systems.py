"""Properties of every system: the Transformer and the recurrent ones with all their options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from lingon.text import PAD
from lingon.training.batches import pad
from lingon.training.models.build import build_model
from lingon.training.models.interface import AnyModel, AttentionModel, select_rows
from lingon.training.search import SearchSettings, translate
from tests.support.random_models import SMALL_VOCAB, SYSTEMS, ids, learn_to_reverse, random_system, system_settings

ATTENTIVE = [name for name in SYSTEMS if not name.startswith("rnnenc")]
LOCAL = [name for name in SYSTEMS if "local" in name]
LENGTHS = torch.tensor([7, 3, 1])


def attentive(name: str) -> AttentionModel[Any, Any]:
    model = random_system(name)
    assert isinstance(model, AttentionModel)
    return model


def stepped(model: AnyModel, memory: Any, target: Tensor) -> Tensor:
    past, found = model.start(memory), []
    for token in target.unbind(1):
        logits, past = model.decode_step(token, past, memory)
        found.append(logits)
    return torch.stack(found, 1)


@pytest.mark.parametrize("name", SYSTEMS)
def test_decoding_step_by_step_gives_the_logits_of_decoding_at_once(name: str) -> None:
    model, target = random_system(name), ids(3, 9)
    memory = model.encode(ids(3, 7), LENGTHS)
    assert_close(stepped(model, memory, target), model.decode(target, memory), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("wider", [1, 6])
def test_padding_changes_nothing(name: str, wider: int) -> None:
    model, source, target = random_system(name), ids(3, 7), ids(3, 5)
    expected = model(source, LENGTHS, target)
    padded, longer = (functional.pad(each, (0, wider), value=PAD) for each in (source, target))
    found = model(padded, LENGTHS, longer)[:, :5]
    assert_close(found, expected, rtol=1e-6, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_ids_in_the_padding_change_nothing(name: str) -> None:
    model, target, one = random_system(name), ids(3, 5), ids(3, 7)
    other = torch.where(torch.arange(7) < LENGTHS[:, None], one, 4 + (one + 3) % 15)
    assert not torch.equal(one, other)
    assert torch.equal(model(one, LENGTHS, target), model(other, LENGTHS, target))


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_other_rows_of_a_batch_and_their_order_change_nothing(name: str) -> None:
    model, targets = random_system(name), ids(4, 6)
    sources = [ids(12)[:length].tolist() for length in (3, 12, 7, 1)]
    lengths, order = torch.tensor([3, 12, 7, 1]), torch.tensor([2, 0, 3, 1])
    together = model(pad(sources), lengths, targets)
    near = {"rtol": 1e-6, "atol": 1e-5 * together.abs().max().item()}
    assert_close(model(pad(sources)[order], lengths[order], targets[order]), together[order], **near)
    for row, source in enumerate(sources):
        alone = model(torch.tensor([source]), lengths[row : row + 1], targets[row : row + 1])
        assert_close(alone[0], together[row], **near)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_source_token_and_every_earlier_target_token_matter_and_no_later_one(name: str) -> None:
    model, source, target = random_system(name), ids(1, 7), ids(1, 6)
    expected = model(source, LENGTHS[:1], target)
    for position in range(7):
        changed = source.clone()
        changed[0, position] = 4 + (source[0, position] - 3) % 15
        assert not torch.allclose(model(changed, LENGTHS[:1], target)[:, -1], expected[:, -1], atol=1e-7)
    for position in range(6):
        changed = target.clone()
        changed[0, position] = 4 + (target[0, position] - 3) % 15
        logits = model(source, LENGTHS[:1], changed)
        assert_close(logits[:, :position], expected[:, :position], rtol=1e-6, atol=1e-6)
        assert not torch.allclose(logits[:, position:], expected[:, position:], atol=1e-7)


@pytest.mark.parametrize("name", SYSTEMS)
def test_rows_of_memory_and_past_can_be_repeated_and_reordered(name: str) -> None:
    """As beam search does after every step."""
    model, rows = random_system(name), torch.tensor([2, 0, 0, 1])
    memory = model.encode(ids(3, 7), LENGTHS)
    _, past = model.decode_step(ids(3), model.start(memory), memory)
    expected, _ = model.decode_step(ids(3, seed=1), past, memory)
    chosen, chosen_memory = select_rows((past, memory), rows)
    assert (type(chosen), type(chosen_memory)) == (type(past), type(memory))
    found, _ = model.decode_step(ids(3, seed=1)[rows], chosen, chosen_memory)
    assert_close(found, expected[rows], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["transformer", "rnnenc gru", "rnnsearch lstm", "luong local-predictive"])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_translation_is_the_same_alone_and_beside_others(name: str, beam_size: int) -> None:
    model, settings = random_system(name), SearchSettings(beam_size=beam_size, length_penalty=1.0)
    sources = [ids(12, seed=seed)[:length].tolist() for seed, length in enumerate((3, 12, 7, 1))]
    together = translate(model, sources, settings)
    alone = [translate(model, [source], settings)[0] for source in sources]
    assert [one[0].tokens for one in alone] == [one[0].tokens for one in together]
    assert len({one[0].tokens for one in together}) > 1


@pytest.mark.parametrize("name", ATTENTIVE)
def test_attention_has_one_weight_for_each_layer_head_target_and_source_token(name: str) -> None:
    model = attentive(name)
    weights = model.attention(ids(3, 7), LENGTHS, ids(3, 5))
    layers, heads = (2, 2) if name.startswith("transformer") else (1, 1)
    assert weights.shape == (3, layers, heads, 5, 7)
    assert (weights >= 0).all()


@pytest.mark.parametrize("name", ATTENTIVE)
def test_the_weights_of_the_source_sum_to_one_and_its_padding_has_exactly_none(name: str) -> None:
    weights = attentive(name).attention(ids(3, 7), LENGTHS, ids(3, 5))
    for row, length in enumerate(LENGTHS.tolist()):
        assert (weights[row, ..., length:] == 0).all()
    if "predictive" in name:  # the Gaussian takes weight away; Luong et al. do not normalise again
        assert (weights.sum(-1) <= 1 + 1e-6).all()
    else:
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@pytest.mark.parametrize("name", ATTENTIVE)
def test_the_logits_beside_the_weights_are_those_of_decoding(name: str) -> None:
    model, target = attentive(name), ids(3, 5)
    memory = model.encode(ids(3, 7), LENGTHS)
    assert_close(model.decode_with_attention(target, memory)[0], model.decode(target, memory))


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_window_has_exactly_no_weight_outside(name: str) -> None:
    model, lengths = attentive(name), torch.tensor([18, 12])
    weights = model.attention(ids(2, 18), lengths, ids(2, 16))[:, 0, 0]
    for row, length in enumerate(lengths.tolist()):
        for step, seen in enumerate((weights[row] > 0).tolist()):
            positions = [position for position, visible in enumerate(seen) if visible]
            assert positions == list(range(positions[0], positions[-1] + 1))
            assert len(positions) <= 7  # 2D + 1
            if "monotonic" in name:
                centre = min(step, length - 1)
                assert positions == list(range(max(centre - 3, 0), min(centre + 3, length - 1) + 1))


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_a_system_trains_in_half_precision(name: str, precision: torch.dtype) -> None:
    model = random_system(name).train()
    with torch.autocast("cpu", precision):
        loss = model(ids(3, 7), LENGTHS, ids(3, 5)).float().logsumexp(-1).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_weight_has_a_gradient_after_one_update_of_real_tokens(name: str) -> None:
    model = random_system(name).train()
    model(ids(3, 7), LENGTHS, ids(3, 5)).logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
    assert [key for key, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []


@pytest.mark.parametrize(("tie", "matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
@pytest.mark.parametrize("kind", ["rnnenc", "rnnsearch", "luong"])
def test_tied_embeddings_are_one_tensor(kind: str, tie: str, matrices: int) -> None:
    model: Any = build_model(system_settings(kind, tie=tie), SMALL_VOCAB, SMALL_VOCAB)
    weights = (model.source_embedding.pieces.weight, model.target_embedding.pieces.weight, model.output.weight)
    assert len({weight.data_ptr() for weight in weights}) == matrices


LEARNERS: dict[str, tuple[int, float, dict[str, Any]]] = {
    "transformer": (250, 1e-2, {"kind": "transformer", "norm": "pre"}),
    "transformer options": (
        250,
        1e-2,
        {"kind": "transformer", "norm": "pre", "positions": "rotary", "score": "additive", "encoder_window": 3},
    ),
    "transformer mbart": (250, 1e-2, {**SYSTEMS["transformer mbart"], "activation": "quick-gelu"}),
    "transformer t5": (250, 1e-2, {**SYSTEMS["transformer t5"], "positions": "relative"}),
    "transformer ssru": (250, 1e-2, {**SYSTEMS["transformer nllb"], "decoder_cell": "ssru"}),
    "transformer query norm": (250, 1e-2, {**SYSTEMS["transformer opus"], **SYSTEMS["transformer query norm"]}),
    "transformer gemma": (
        250,
        1e-2,
        {**SYSTEMS["transformer gemma"], "attention_softcap": 20.0, "output_softcap": 20.0},
    ),
    "transformer linear": (200, 1e-2, {"kind": "transformer", "norm": "pre", "encoder_attention": "linear"}),
    "rnnenc": (450, 3e-3, {"kind": "rnnenc", "cell": "lstm", "layers": 1, "dim": 96, "embedding_dim": 96}),
    "rnnsearch": (200, 1e-2, {"kind": "rnnsearch", "dim": 32, "embedding_dim": 32, "encoder_dim": 16}),
    "luong global": (250, 1e-2, {"kind": "luong", "layers": 1, "dim": 32, "embedding_dim": 32}),
    "luong local": (
        250,
        1e-2,
        {"kind": "luong", "alignment": "local-predictive", "layers": 1, "dim": 32, "embedding_dim": 32},
    ),
}
"""By name: updates, learning rate and settings. Together they have every option that may hinder learning."""


@pytest.mark.parametrize("name", LEARNERS)
def test_a_system_learns_to_reverse_digits(name: str) -> None:
    """A second and a third try are longer: how fast a run learns depends on how a processor rounds."""
    updates, rate, settings = LEARNERS[name]
    wanted = system_settings(dropout=0.0, **settings)
    assert any(learn_to_reverse(wanted, times * updates, rate=rate) >= 0.9 for times in (1, 2, 4))
