"""The training benchmark: the baseline loop, the measured loop of `lingon train`, and the comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from lingon.bench.device_roofline import DevicePeaks
from lingon.bench.train import (
    BaselineLoop,
    BaselineTransformer,
    Rounds,
    batch_size,
    batches,
    flops_per_target_token,
    loop_settings,
    measure,
    on_device,
    paired_ratio,
    prepared,
    run_baseline,
    run_lingon,
    settings,
    table,
)
from lingon.errors import SettingsError
from lingon.text import BOS, EOS, PAD, Tokenizer
from lingon.training.batches import EncodedPairs, encode_pairs
from lingon.training.checkpoint import saved_steps
from lingon.training.config import Config, TokenizerSettings, TrainingSettings, load_config
from lingon.training.corpus import Pair
from lingon.training.model_settings import RnnencSettings, TransformerSettings
from lingon.training.models.transformer import Transformer
from lingon.training.tokenizer import train_tokenizer
from tests.support.repository import ROOT
from tests.support.training_runs import tiny_config_text, write_digit_corpus

TINY = TransformerSettings.model_validate({"preset": "tiny", "max_positions": 32, "norm": "pre"})
LEARNING = TrainingSettings(batch_tokens=600, learning_rate=4e-3, warmup_steps=20, max_steps=1000)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    folder = tmp_path_factory.mktemp("digits")
    write_digit_corpus(folder, pairs=300)
    sources, targets = ((folder / f"train.{side}").read_text().splitlines() for side in ("source", "target"))
    return [Pair(*pair) for pair in zip(sources, targets, strict=True)]


@pytest.fixture(scope="module")
def tokenizer(pairs: list[Pair]) -> Tokenizer:
    return train_tokenizer(pairs, TokenizerSettings(vocab_size=280, character_coverage=1.0))


@pytest.fixture(scope="module")
def encoded(pairs: list[Pair], tokenizer: Tokenizer) -> EncodedPairs:
    return encode_pairs(pairs, tokenizer)


@pytest.fixture
def config(tmp_path: Path, tokenizer: Tokenizer) -> Config:
    """A run on digits with an existing tokenizer."""
    write_digit_corpus(tmp_path, pairs=300)
    (tmp_path / "tokenizer").mkdir()
    for name, content in tokenizer.files().items():
        (tmp_path / "tokenizer" / name).write_bytes(content)
    (tmp_path / "config.toml").write_text(tiny_config_text(tokenizer={"path": "tokenizer"}), encoding="utf-8")
    return load_config(tmp_path / "config.toml")


def test_the_baseline_model_has_about_as_many_weights_as_ours():
    base = TransformerSettings.model_validate({"preset": "base", "encoder_layers": 1, "decoder_layers": 1})
    ours, baseline = (
        sum(parameter.numel() for parameter in model.parameters())
        for model in (Transformer(base, 500, 500), BaselineTransformer(base, 500))
    )
    assert baseline == pytest.approx(ours, rel=0.001)


def test_the_baseline_model_ignores_padding():
    torch.manual_seed(0)
    model = BaselineTransformer(TINY, 20).eval()
    source, target = torch.tensor([[5, 6, EOS]]), torch.tensor([[BOS, 7]])
    padded_source, padded_target = torch.tensor([[5, 6, EOS, PAD, PAD]]), torch.tensor([[BOS, 7, PAD]])
    torch.testing.assert_close(model(source, target), model(padded_source, padded_target)[:, :2])


def test_the_baseline_model_does_not_see_later_tokens():
    torch.manual_seed(0)
    model = BaselineTransformer(TINY, 20).eval()
    source = torch.tensor([[5, 6, EOS]])
    here, there = (model(source, torch.tensor([[BOS, 7, last]])) for last in (8, 9))
    torch.testing.assert_close(here[:, :2], there[:, :2])


def test_an_epoch_of_the_baseline_has_every_pair_once(encoded: EncodedPairs):
    count = 32
    epoch = math.ceil(len(encoded.sources) / count)
    found = batches(encoded, count, seed=1)
    rows = [row for _ in range(epoch) for row in next(found)[1].tolist()]
    assert all(row[0] == BOS and EOS in row for row in rows)
    seen = sorted([token for token in row if token not in (BOS, EOS, PAD)] for row in rows)
    assert seen == sorted(encoded.targets)


def test_batches_of_the_baseline_have_as_many_tokens_as_ours(encoded: EncodedPairs):
    count = batch_size(encoded, 600)
    assert count * encoded.lengths().max(axis=1).mean() == pytest.approx(600, rel=0.05)


def test_the_baseline_learns_and_counts_target_tokens_without_padding(encoded: EncodedPairs):
    loop = BaselineLoop(TINY, LEARNING, encoded, 280)
    count = batch_size(encoded, LEARNING.batch_tokens)
    epoch = math.ceil(len(encoded.sources) / count)
    tokens, first = loop.run(epoch)
    assert tokens == int(encoded.lengths()[:, 1].sum())
    assert loop.run(60)[1] < 0.8 * first


def rounds_of(times: int) -> tuple[list[dict[str, float]], Callable[[], bool]]:
    left = iter([True] * times)
    return [], lambda: next(left, False)


def test_a_round_has_the_updates_of_the_real_loop_and_the_run_waits_between_rounds(config: Config, tmp_path: Path):
    sent, next_round = rounds_of(3)
    loop = loop_settings(config, bf16=False)[0]
    values = Config.model_validate(prepared(config, loop, Rounds(rounds=2, updates=4)))
    run_lingon(values, tmp_path / "run", sent.append, next_round)
    assert [set(each) for each in sent] == [{"weights"}, *[{"tokens_per_s", "loss"}] * 3]
    assert sent[3]["loss"] < sent[1]["loss"]
    assert saved_steps(tmp_path / "run") == []  # Only training was measured.


def test_the_baseline_refuses_other_kinds_of_models(config: Config, tmp_path: Path):
    recurrent = config.model_copy(update={"model": RnnencSettings()})
    with pytest.raises(SettingsError, match=r"the baseline has model\.kind = 'transformer' only, got 'rnnenc'"):
        run_baseline(recurrent, tmp_path, lambda figures: None, lambda: False)


def test_bf16_is_measured_if_the_configuration_and_the_processor_have_it(config: Config):
    training = config.training.model_copy(update={"precision": "bf16"})
    with_bf16 = config.model_copy(update={"training": training})
    assert [each.name for each in loop_settings(with_bf16, bf16=True)] == ["lingon bf16", "lingon fp32", "plain"]
    assert [each.name for each in loop_settings(with_bf16, bf16=False)] == ["lingon fp32", "plain"]
    assert [each.name for each in loop_settings(config, bf16=True)] == ["lingon fp32", "plain"]


def test_ratios_are_taken_round_by_round():
    assert paired_ratio([20, 200, 60], [10, 100, 20]) == 2


def test_zero_rounds_are_rejected():
    with pytest.raises(SettingsError, match="rounds must be at least 1, got 0"):
        Rounds(rounds=0)


def test_only_text_and_tokenizer_of_the_configuration_are_replaced(config: Config):
    assert config.tokenizer.path is not None
    found = settings(ROOT / "configs" / "en-de.toml", config.tokenizer.path, None)
    assert found.model == load_config(ROOT / "configs" / "en-de.toml").model
    assert found.training.precision == "bf16"
    assert [corpus.source and corpus.source.name for corpus in found.data.train] == ["tatoeba.en"]
    elsewhere = settings(ROOT / "configs" / "en-de.toml", config.tokenizer.path, Path("data"))
    assert elsewhere.data.valid[0].target == Path("data/tatoeba.en-de.valid.de.gz")


@pytest.fixture
def rows(config: Config, tmp_path: Path) -> Iterator[list[dict[str, object]]]:
    lines: list[str] = []
    rounds = Rounds(rounds=2, updates=2)
    loops, peaks = loop_settings(config, bf16=False), DevicePeaks({"fp32": 1e12}, 1e9, 0.0)
    yield measure(config, loops, rounds, threads=1, folder=tmp_path, peaks=peaks, write=lines.append)
    assert len(lines) == 6


def test_both_loops_are_measured_in_separate_processes(rows: list[dict[str, object]]):
    assert [(row["loop"], row["threads"]) for row in rows] == [("lingon fp32", 1), ("plain", 1)]
    assert rows[1]["ratio_to_plain"] == 1
    assert all(row["device"] == "cpu" for row in rows)
    assert all(isinstance(row["runs_tokens_per_s"], list) and len(row["runs_tokens_per_s"]) == 2 for row in rows)
    assert table(rows).row_count == 2


def test_the_share_of_peak_is_the_rate_of_operations_by_that_of_the_device(rows: list[dict[str, object]]):
    """The peak of the fixture is 1e12 operations a second."""
    for row in rows:
        assert isinstance(row["tokens_per_s"], float)
        assert isinstance(row["flops_per_token"], int)
        assert row["fraction_of_peak"] == pytest.approx(row["tokens_per_s"] * row["flops_per_token"] / 1e12, abs=1e-4)


def test_the_operations_of_a_target_token_are_those_of_the_products_of_a_pair():
    """One layer each, dim 4, feed-forward 8, vocabulary 10; a source of 3 tokens, a target of 2."""
    settings = TransformerSettings(dim=4, heads=1, ffn=8, encoder_layers=1, decoder_layers=1)
    encoder = 3 * (3 * 16 + 16 + 2 * 32) + 2 * 3 * 3 * 4
    decoder = 2 * (3 * 16 + 16 + 16 + 16 + 2 * 32) + 3 * 2 * 16 + 2 * 4 * (1 + 2) + 2 * 2 * 3 * 4
    expected = 3 * 2 * (encoder + decoder + 2 * 4 * 10) / 2
    assert flops_per_target_token(settings, 10, np.array([[3, 2]])) == expected


def test_on_cuda_both_loops_compute_the_base_model_in_bf16(config: Config):
    found = on_device(config, "cuda", None, None)
    assert [(each.name, each.precision) for each in loop_settings(found, bf16=False)] == [
        ("lingon bf16", "bf16"),
        ("plain", "bf16"),
    ]
    assert (found.model.preset, found.model.dim, found.training.batch_tokens) == ("base", 512, 32_768)
    assert found.model.norm == config.model.norm


def test_on_the_cpu_only_the_device_of_the_configuration_changes(config: Config):
    auto = config.model_copy(update={"training": config.training.model_copy(update={"device": "auto"})})
    assert on_device(auto, "cpu", None, None) == config


def test_an_unknown_preset_is_rejected(config: Config):
    with pytest.raises(SettingsError, match="--preset must be one of tiny, small, base, big, deep-encoder, got 'huge'"):
        on_device(config, "cpu", "huge", None)


def test_the_baseline_computes_in_the_precision_of_its_settings(encoded: EncodedPairs):
    losses = []
    for precision in ("fp32", "bf16"):
        settings = LEARNING.model_copy(update={"precision": precision, "device": "cpu"})
        losses.append(BaselineLoop(TINY, settings, encoded, 280).run(2)[1])
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
