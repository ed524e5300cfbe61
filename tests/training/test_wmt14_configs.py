"""The configs of WMT14: the settings and the sizes of the paper, and that each of them starts."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

from lingon.lines import read_lines
from lingon.training.checkpoint import saved_steps
from lingon.training.config import load_config, paper_learning_rate
from lingon.training.models.build import build_model
from tests.support.repository import ROOT
from tests.support.training_runs import log_of, train

CONFIGS = sorted((ROOT / "configs" / "wmt14").glob("*.toml"))
WEIGHTS = {"base": 65e6, "big": 213e6}  # Vaswani et al. (2017), table 3
PAPER = {  # dropout, updates, checkpoints in the average: section 6.1 and table 3
    "en-de-base": (0.1, 100_000, 5),
    "en-de-big": (0.3, 300_000, 20),
    "en-fr-base": (0.1, 100_000, 5),
    "en-fr-big": (0.1, 300_000, 20),
}
TOKENS = 25_000  # source and target tokens of an update each, section 5.1
by_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)


def test_every_pair_and_size_has_a_config() -> None:
    assert [path.stem for path in CONFIGS] == list(PAPER)


@by_config
def test_a_config_has_the_settings_of_the_paper(path: Path) -> None:
    config = load_config(path)
    training, model = config.training, config.model
    assert (model.dropout, training.max_steps, training.keep_checkpoints) == PAPER[path.stem]
    assert training.learning_rate == pytest.approx(paper_learning_rate(model.dim, training.warmup_steps))
    assert (training.warmup_steps, training.label_smoothing) == (4000, 0.1)
    assert training.batch_tokens * training.accumulate == TOKENS
    assert (model.norm, model.positions, model.tie, model.activation) == ("post", "sinusoidal", "all", "relu")


@by_config
def test_a_model_has_as_many_weights_as_in_the_paper(path: Path) -> None:
    config = load_config(path)
    vocab = config.tokenizer.vocab_size
    with torch.device("meta"):  # shapes without memory
        model = build_model(config.model, vocab, vocab)
    weights = sum(weight.numel() for weight in model.parameters())
    expected = WEIGHTS[path.stem.rpartition("-")[2]]
    # The paper gives the sizes of English to German. 5,000 pieces fewer are 2.6 and 5.1 million weights fewer.
    fewer = (37_000 - vocab) * config.model.dim
    assert weights == pytest.approx(expected - fewer, rel=0.035)


@by_config
def test_a_run_starts_on_a_small_extract(path: Path, tmp_path: Path) -> None:
    """With all layers and heads, and with the batches of 8 cards in an update; narrow, because a file is written."""
    files = []
    for block, count in (("train.0", 80), ("valid", 2)):
        for side, language in (("source", "en"), ("target", "de")):
            lines = islice(read_lines(ROOT / "tests" / "data" / f"tatoeba.{language}"), count)
            (tmp_path / f"{block}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            files.append(f"data.{block}.{side}='{tmp_path / f'{block}.{side}'}'")
    small = ["model.dim=32", "model.heads=4", "model.ffn=32", "tokenizer.vocab_size=380", "training.batch_tokens=150"]
    steps = ["max_steps=2", "log_every=1", "device=cpu"]
    config = load_config(path, [*files, *small, *(f"training.{setting}" for setting in steps)])
    trainer = train(config, tmp_path / "run")
    assert trainer.progress.step == 2
    assert [line["learning_rate"] for line in log_of(tmp_path / "run", "train")] == [
        pytest.approx(step / 4000 * config.training.learning_rate) for step in (1, 2)
    ]
    assert [folder.name for folder in saved_steps(tmp_path / "run")] == ["step-00000002"]
