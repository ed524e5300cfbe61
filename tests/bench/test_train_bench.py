"""The plain loop that ours is measured against, and that it is the real loop of ours that is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from lingon.bench.train.baseline import PlainLoop, PlainTransformer, batch_size, batches
from lingon.bench.train.data import settings
from lingon.bench.train.run import Rounds, contestants, measure, multiplies_bf16, paired_ratio, prepared, table
from lingon.bench.train.worker import ours
from lingon.errors import SettingsError
from lingon.text import BOS, EOS, PAD, Tokenizer
from lingon.training.checkpoint import saved_steps
from lingon.training.config import Config, ModelSettings, TokenizerSettings, TrainingSettings, load_config
from lingon.training.data.batches import EncodedPairs, encode_pairs
from lingon.training.data.corpus import Pair
from lingon.training.data.tokenizer import train_tokenizer
from lingon.training.models.transformer import Transformer
from tests.support.repository import ROOT
from tests.support.tiny_training import tiny_config_text, write_digit_corpus

TINY = ModelSettings.model_validate({"preset": "tiny", "max_positions": 32, "norm": "pre"})
LEARNING = TrainingSettings(batch_tokens=600, learning_rate=4e-3, warmup_steps=20, max_steps=1000)


@pytest.fixture(autouse=True, scope="module")
def _one_core() -> None:
    torch.set_num_threads(1)


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
    """A run on digits with a tokenizer that is there already."""
    write_digit_corpus(tmp_path, pairs=300)
    (tmp_path / "words").mkdir()
    for name, content in tokenizer.files().items():
        (tmp_path / "words" / name).write_bytes(content)
    (tmp_path / "config.toml").write_text(tiny_config_text(tokenizer={"path": "words"}), encoding="utf-8")
    return load_config(tmp_path / "config.toml")


def test_the_plain_model_has_about_as_many_weights_as_ours():
    base = ModelSettings.model_validate({"preset": "base", "encoder_layers": 1, "decoder_layers": 1})
    ours, plain = (
        sum(parameter.numel() for parameter in model.parameters())
        for model in (Transformer(base, 500, 500), PlainTransformer(base, 500))
    )
    assert plain == pytest.approx(ours, rel=0.001)


def test_padding_is_not_seen_by_the_plain_model():
    torch.manual_seed(0)
    model = PlainTransformer(TINY, 20).eval()
    source, target = torch.tensor([[5, 6, EOS]]), torch.tensor([[BOS, 7]])
    padded_source, padded_target = torch.tensor([[5, 6, EOS, PAD, PAD]]), torch.tensor([[BOS, 7, PAD]])
    torch.testing.assert_close(model(source, target), model(padded_source, padded_target)[:, :2])


def test_the_plain_model_does_not_see_the_tokens_to_come():
    torch.manual_seed(0)
    model = PlainTransformer(TINY, 20).eval()
    source = torch.tensor([[5, 6, EOS]])
    here, there = (model(source, torch.tensor([[BOS, 7, last]])) for last in (8, 9))
    torch.testing.assert_close(here[:, :2], there[:, :2])


def test_an_epoch_of_the_plain_loop_has_every_pair_once(encoded: EncodedPairs):
    count = 32
    epoch = math.ceil(len(encoded.sources) / count)
    found = batches(encoded, count, seed=1)
    rows = [row for _ in range(epoch) for row in next(found)[1].tolist()]
    assert all(row[0] == BOS and EOS in row for row in rows)
    seen = sorted([token for token in row if token not in (BOS, EOS, PAD)] for row in rows)
    assert seen == sorted(encoded.targets)


def test_batches_of_the_plain_loop_come_to_as_many_tokens_as_ours(encoded: EncodedPairs):
    count = batch_size(encoded, 600)
    assert count * encoded.lengths().max(axis=1).mean() == pytest.approx(600, rel=0.05)


def test_the_plain_loop_learns_and_counts_only_real_target_tokens(encoded: EncodedPairs):
    loop = PlainLoop(TINY, LEARNING, encoded, 280)
    count = batch_size(encoded, LEARNING.batch_tokens)
    epoch = math.ceil(len(encoded.sources) / count)
    tokens, first = loop.run(epoch)
    assert tokens == int(encoded.lengths()[:, 1].sum())
    assert loop.run(60)[1] < 0.8 * first


def paced(times: int) -> tuple[list[dict[str, float]], Callable[[], bool]]:
    left = iter([True] * times)
    return [], lambda: next(left, False)


def test_a_round_is_so_many_updates_of_the_real_loop_and_the_run_waits_in_between(config: Config, tmp_path: Path):
    told, go_on = paced(3)
    wanted = contestants(config, bf16=False)[0]
    values = Config.model_validate(prepared(config, wanted, Rounds(rounds=2, updates=4)))
    ours(values, tmp_path / "run", told.append, go_on)
    assert [set(each) for each in told] == [{"weights"}, *[{"tokens_per_s", "loss"}] * 3]
    assert told[3]["loss"] < told[1]["loss"]
    assert saved_steps(tmp_path / "run") == []  # nothing but learning was in the time


def test_bf16_is_measured_where_settings_ask_for_it_and_the_processor_has_it(config: Config):
    training = config.training.model_copy(update={"precision": "bf16"})
    wants = config.model_copy(update={"training": training})
    assert [each.name for each in contestants(wants, bf16=True)] == ["lingon bf16", "lingon fp32", "plain"]
    assert [each.name for each in contestants(wants, bf16=False)] == ["lingon fp32", "plain"]
    assert [each.name for each in contestants(config, bf16=True)] == ["lingon fp32", "plain"]
    assert multiplies_bf16("flags : avx2 avx512_bf16 fma")
    assert not multiplies_bf16("flags : avx2 avx512f fma")


def test_ratios_are_taken_round_by_round():
    assert paired_ratio([20, 200, 60], [10, 100, 20]) == 2


def test_no_rounds_are_refused():
    with pytest.raises(SettingsError, match="rounds must be at least 1, got 0"):
        Rounds(rounds=0)


def test_text_is_replaced_and_all_else_is_of_the_config(config: Config):
    assert config.tokenizer.path is not None
    found = settings(ROOT / "configs" / "en-de.toml", config.tokenizer.path, None)
    assert found.model == load_config(ROOT / "configs" / "en-de.toml").model
    assert found.training.precision == "bf16"
    assert [corpus.source and corpus.source.name for corpus in found.data.train] == ["tatoeba.en"]
    elsewhere = settings(ROOT / "configs" / "en-de.toml", config.tokenizer.path, Path("data"))
    assert elsewhere.data.valid.target == Path("data/tatoeba.en-de.valid.de.gz")


@pytest.fixture
def rows(config: Config, tmp_path: Path) -> Iterator[list[dict[str, object]]]:
    lines: list[str] = []
    rounds = Rounds(rounds=2, updates=2)
    yield measure(config, contestants(config, bf16=False), rounds, threads=1, scratch=tmp_path, say=lines.append)
    assert len(lines) == 6


def test_both_loops_are_measured_in_processes_of_their_own(rows: list[dict[str, object]]):
    assert [(row["loop"], row["threads"]) for row in rows] == [("lingon fp32", 1), ("plain", 1)]
    assert rows[1]["ratio_to_plain"] == 1
    assert all(isinstance(row["runs_tokens_per_s"], list) and len(row["runs_tokens_per_s"]) == 2 for row in rows)
    assert table(rows).row_count == 2
