"""The recurrent systems against NumPy transcriptions of their formulas, and against mistakes in these formulas."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lingon.text import BOS, EOS
from lingon.training.models import recurrent
from lingon.training.models.interface import AnyModel, AttentionModel
from tests.support import formulas
from tests.support.mutants import SourceMutant
from tests.support.random_models import SCORES, SMALL_VOCAB, SYSTEMS, ids, system_settings, with_noise

RECURRENT = [name for name in SYSTEMS if not name.startswith("transformer")]
SENTENCES = [(1, 4), (4, 9), (7, 2)]  # source tokens without EOS, target tokens with BOS


def weights_of(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy() for name, tensor in module.state_dict().items()}


def assert_near(found: Tensor, expected: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), np.asarray(expected), rtol=1e-4, atol=1e-5)


def check_score(module: ModuleType, name: str) -> None:
    torch.manual_seed(2)
    dim, annotation_dim = 6, 6 if name in ("dot", "scaled-dot", "content") else 10
    score = with_noise(module.make_score(name, dim, annotation_dim, 8))
    states, annotations = torch.randn(2, 3, dim), torch.randn(2, 5, annotation_dim)
    found = score(states, score.prepare(annotations))
    weights = {f"score.{key}": value for key, value in weights_of(score).items()}
    for row in range(2):
        s, h = states[row].double().numpy(), annotations[row].double().numpy()
        assert_near(found[row], [[formulas.score(weights, "score", name, each, one) for one in h] for each in s])


def check_cell(module: ModuleType, kind: str) -> None:
    """Compare a step, the whole sequence, and both ways of reading rows of different lengths."""
    torch.manual_seed(3)
    layer = with_noise(module.recurrence(system_settings("rnnenc", cell=kind), 5, 12))
    inputs, lengths = torch.randn(3, 6, 5), torch.tensor([6, 2, 1])
    weights = {f"layer.{name}": value for name, value in weights_of(layer).items()}
    begin = tuple(torch.randn(3, 12) for _ in range(layer.tensors))
    stepped, whole = layer.step(inputs[:, 0], begin), layer(inputs, begin)
    for row in range(3):
        state = tuple(each[row].double().numpy() for each in begin)
        for position, each in enumerate(inputs[row].double().numpy()):
            state = formulas.cell(weights, "layer", kind, each, state)
            assert_near(whole[row, position], state[0])
            if position == 0:
                for one, expected in zip(stepped, state, strict=True):
                    assert_near(one[row], expected)
    for outputs, last in (layer.read(inputs, lengths), layer.read_by_steps(inputs, lengths)):
        for row, length in enumerate(lengths.tolist()):
            expected = formulas.read(weights, "layer", kind, list(inputs[row, :length].double().numpy()))
            assert_near(outputs[row, :length], [state[0] for state in expected])
            for one, of_last in zip(last, expected[-1], strict=True):
                assert_near(one[row], of_last)


def check_reversal(module: ModuleType, _: str = "") -> None:
    rows = torch.arange(18).view(3, 6)
    found = module.reverse_rows(rows, torch.tensor([6, 3, 1]))
    assert found.tolist() == [[5, 4, 3, 2, 1, 0], [8, 7, 6, 9, 10, 11], [12, 13, 14, 15, 16, 17]]
    kept = module.reverse_rows(rows, torch.tensor([6, 3, 1]), kept=1)
    assert kept.tolist() == [[4, 3, 2, 1, 0, 5], [7, 6, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17]]


def check_system(module: ModuleType, name: str) -> None:
    torch.manual_seed(4)
    settings = system_settings(**SYSTEMS[name])
    make: Callable[..., AnyModel] = getattr(module, settings.kind.capitalize())
    model = with_noise(make(settings, SMALL_VOCAB, SMALL_VOCAB))
    weights = weights_of(model)
    for seed, (source_length, target_length) in enumerate(SENTENCES):
        source = [*ids(source_length, seed=seed).tolist(), EOS]
        target = [BOS, *ids(target_length - 1, seed=seed + 9).tolist()]
        arguments = torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([target])
        expected = getattr(formulas, settings.kind)(weights, settings, source, target)
        if isinstance(model, AttentionModel):
            assert_near(model.attention(*arguments)[0, 0, 0], expected[1])
        assert_near(model(*arguments)[0], expected[0] if isinstance(expected, tuple) else expected)


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_its_formula(name: str) -> None:
    check_score(recurrent, name)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_cell_is_its_formula_step_by_step_and_at_once(kind: str) -> None:
    check_cell(recurrent, kind)


def test_each_row_is_reversed_within_its_own_length() -> None:
    check_reversal(recurrent)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_system_is_its_formulas(name: str) -> None:
    check_system(recurrent, name)


Check = Callable[[ModuleType, str], None]
MISTAKES: list[tuple[Check, str, SourceMutant]] = [
    (check, of, SourceMutant("recurrent", after, right, wrong))
    for check, edits in (
        (
            check_score,
            [
                ("dot", "class Dot", "states @", "-states @"),
                ("scaled-dot", "class ScaledDot", "/ math.sqrt", "* math.sqrt"),
                ("content", "class Content", "functional.normalize(states, dim=-1)", "states"),
                ("content", "class Content", "functional.normalize(annotations, dim=-1)", "annotations"),
                ("content", "class Content", "self.strength *", "1.0 *"),
                ("additive", "class Additive", "torch.tanh(", "("),
                ("additive", "class Additive", "+ keys", "- keys"),
                ("additive", "class Additive", "self.of_state(states)", "self.of_state(-states)"),
                ("general", "class General", "states @", "-states @"),
                ("concat", "class Concat", "torch.tanh(", "("),
                ("concat", "class Concat", "+ keys", "- keys"),
                ("mlp", "class Perceptron", "first = torch.tanh(", "first = ("),
                ("mlp", "class Perceptron", "(torch.tanh(self.second(first)))", "(self.second(first))"),
                ("mlp", "class Perceptron", ", self.first.bias)", ")"),
                ("mlp", "class Perceptron", "+ keys", "- keys"),
            ],
        ),
        (
            check_cell,
            [
                ("gru", "class GatedUnit", "(1 - keep) * new + keep * state[0]", "keep * new + (1 - keep) * state[0]"),
                ("gru", "class GatedUnit", "reset * new_state", "new_state"),
                ("gru", "class GatedUnit", "torch.tanh(", "("),
                ("gru", "class GatedUnit", "reset_input + reset_state", "reset_input - reset_state"),
                ("gru", "class GatedUnit", "start[0][None]", "start[0][None] * 0"),
                ("gru", "class GatedUnit", "lengths - 1]", "lengths * 0 - 1]"),
                ("lstm", "class LongShortTermMemory", "* state[1]", "* state[0]"),
                ("lstm", "class LongShortTermMemory", "* torch.tanh(cell)", "* cell"),
                ("lstm", "class LongShortTermMemory", "* torch.tanh(new)", "* new"),
                ("lstm", "class LongShortTermMemory", "enter, forget, new", "forget, enter, new"),
                ("lstm", "class LongShortTermMemory", "(hidden, cell)", "(cell, hidden)"),
                ("lstm", "def read_by_steps", "torch.where(real, new, old)", "new"),
                ("gru", "def read_by_steps", "torch.where(real, new, old)", "torch.where(real, old, new)"),
            ],
        ),
        (
            check_reversal,
            [
                ("", "def reverse_rows", "turned - 1 - positions", "positions"),
                ("", "def reverse_rows", "lengths - kept", "lengths"),
            ],
        ),
        (
            check_system,
            [
                ("rnnenc gru", "def decode(", "memory.last)", "memory.last[::-1])"),
                ("rnnenc reversed", "def encode(", "kept=1", "kept=0"),
                ("rnnenc reversed", "def encode(", "if self.settings.reverse_source", "if False"),
            ],
        ),
        (
            check_system,
            [
                ("rnnsearch gru", "class Rnnsearch(", "torch.tanh(", "("),
                ("rnnsearch gru", "class Rnnsearch(", "back[:, 0]", "back[:, -1]"),
                ("rnnsearch gru", "class Rnnsearch(", "first_state(back", "first_state(ahead"),
                ("rnnsearch gru", "class Rnnsearch(", "[ahead, back]", "[back, ahead]"),
                ("rnnsearch gru", "class Bidirectional", "reverse_rows(back, lengths)", "back"),
                ("rnnsearch gru", "class Bidirectional", "reverse_rows(embedded, lengths)", "embedded"),
                ("rnnsearch gru", "class DeepOutput", ".amax(", ".amin("),
                ("rnnsearch gru", "class DeepOutput", "+ self.of_context", "- self.of_context"),
                ("rnnsearch gru", "class DeepOutput", "+ self.of_token(token)", ""),
                (
                    "rnnsearch gru",
                    "def decode_with_attention(",
                    "steps.append((state[0]",
                    "steps.append((memory.start[0]",
                ),
                ("rnnsearch gru", "def decode_with_attention(", "self.attend(state,", "self.attend(memory.start,"),
                ("rnnsearch lstm", "def attend(", "self.score(state[0]", "self.score(state[1]"),
                ("rnnsearch gru", "def attend(", "weights @ memory.annotations", "-weights @ memory.annotations"),
            ],
        ),
        (
            check_system,
            [
                ("luong global", "class Luong(", "torch.tanh(", "("),
                ("luong global", "class Luong(", "[context, states]", "[states, context]"),
                ("luong global", "def _advance(", "past.attentional]", "past.layers[-1][0]]"),
                ("luong global", "def _advance(", "layers[-1][0][:, None]", "past.layers[-1][0][:, None]"),
                ("luong global", "def _advance(", "layers[-1][0][:, None]", "layers[0][0][:, None]"),
                ("luong local-monotonic", "class MonotonicWindow", "<= self.reach", "< self.reach"),
                ("luong local-monotonic", "class MonotonicWindow", "positions - self", "positions - 1 - self"),
                ("luong local-monotonic", "class MonotonicWindow", "lengths - 1", "lengths - 2"),
                ("luong local-monotonic", "def _advance(", "past.steps + 1", "past.steps"),
                ("luong local-predictive", "class PredictiveWindow", "torch.tanh(", "("),
                ("luong local-predictive", "class PredictiveWindow", "lengths * share", "(lengths - 1) * share"),
                ("luong local-predictive", "class PredictiveWindow", "self.reach / 2", "self.reach"),
                ("luong local-predictive", "class PredictiveWindow", "exp(-(", "exp(-0.1 * ("),
                ("luong local-predictive", "class PredictiveWindow", "sigma**2", "sigma"),
                ("luong local-predictive fast", "class Luong(", "memory.last)", "memory.last[::-1])"),
                ("luong local-monotonic fast", "class Luong(", "expand(", "flip(0).expand("),
            ],
        ),
    )
    for of, after, right, wrong in edits
]


@pytest.mark.parametrize(("check", "name", "mutant"), MISTAKES, ids=[str(mutant) for _, _, mutant in MISTAKES])
def test_a_mistake_in_a_formula_is_caught(check: Check, name: str, mutant: SourceMutant) -> None:
    with pytest.raises(AssertionError):
        check(mutant.load(), name)
