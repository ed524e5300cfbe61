"""A model that is made of a bundle and widened computes what the bundle computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lingon.bundle.store import open_bundle
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.text import BOS, EOS
from lingon.training.config import load_config
from scripts.widen_bundle import widened
from tests.support.repository import ROOT

SOURCE, TARGET = [70, 400, 91, 1200, EOS], [33, 812, 77]


@pytest.mark.parametrize("more", [{}, {"encoder_layers": 6, "decoder_layers": 3}, {"ffn": 1536}], ids=str)
def test_the_model_has_the_log_probabilities_of_the_bundle(more: dict[str, Any]) -> None:
    bundle, config = open_bundle(ROOT / "models" / "en-de"), load_config(ROOT / "configs" / "en-de.toml")
    config = config.model_copy(update={"model": config.model.model_copy(update=more)})
    model = widened(bundle, config).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([SOURCE]), torch.tensor([len(SOURCE)]), torch.tensor([[BOS, *TARGET]]))
    found = logits.log_softmax(-1)[0, torch.arange(len(TARGET) + 1), torch.tensor([*TARGET, EOS])]
    runner = load_runner(bundle, "fp32", threads=1)
    source, target = np.array([SOURCE]), np.array([TARGET])
    (scored,) = runner.score(source, np.array([len(SOURCE)]), target, np.array([len(TARGET)]))
    np.testing.assert_allclose(found.numpy(), scored.log_probs, atol=1e-3)


@pytest.mark.parametrize("cell", ["attention", "ssru"])
def test_a_student_begins_with_what_it_shares_with_the_bundle(cell: str) -> None:
    bundle, config = open_bundle(ROOT / "models" / "en-de"), load_config(ROOT / "configs" / "student" / "en-de.toml")
    whole = widened(bundle, load_config(ROOT / "configs" / "en-de.toml")).state_dict()
    config = config.model_copy(update={"model": config.model.model_copy(update={"decoder_cell": cell})})
    student = widened(bundle, config).state_dict()
    shared = {name for name, values in student.items() if name in whole and torch.equal(values, whole[name])}
    assert {name for name in whole if name.startswith("encoder.")} <= shared
    own = student.keys() - shared
    assert not own & whole.keys()
    assert bool(own) == (cell == "ssru")


def test_a_smaller_encoder_begins_with_layers_from_the_whole_stack() -> None:
    bundle, config = open_bundle(ROOT / "models" / "en-de"), load_config(ROOT / "configs" / "student" / "en-de.toml")
    whole = widened(bundle, load_config(ROOT / "configs" / "en-de.toml")).encoder
    config = config.model_copy(update={"model": config.model.model_copy(update={"encoder_layers": 3})})
    student = widened(bundle, config).encoder
    assert len(whole) == 6
    assert len(student) == 3
    for layer, taken in zip(student, (0, 2, 5), strict=True):
        own, of_bundle = layer.state_dict(), whole[taken].state_dict()
        assert all(torch.equal(values, of_bundle[name]) for name, values in own.items())
