"""The kinds of models: their settings, their checkpoints, and runs that are stopped and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lingon.errors import CheckpointError, SettingsError
from lingon.text import Tokenizer
from lingon.training.batches import encode_pairs
from lingon.training.checkpoint import (
    TrainingProgress,
    average_checkpoints,
    load_checkpoint,
    load_weights,
    save_checkpoint,
)
from lingon.training.config import Config, load_config
from lingon.training.model_settings import MODEL_KINDS, TransformerSettings
from lingon.training.models.build import build_model
from lingon.training.models.interface import AnyModel, AttentionModel
from lingon.training.models.loss import diagonal_penalty
from lingon.training.search import SearchSettings, translate
from tests.support.repository import ROOT
from tests.support.training_runs import counted, same, train, weights_of, write_config

KINDS: dict[str, dict[str, Any]] = {
    "transformer": {"preset": "tiny", "norm": "pre"},
    "rnnenc": {"dim": 16, "embedding_dim": 16},
    "rnnsearch": {"dim": 16, "embedding_dim": 16, "encoder_dim": 8, "attention_dim": 8},
    "luong": {"dim": 16, "embedding_dim": 16, "alignment": "local-predictive", "window": 3},
}
SHORT_RUN = {
    "max_steps": 12,
    "warmup_steps": 5,
    "cooldown_steps": 4,
    "batch_tokens": 300,
    "accumulate": 2,
    "valid_every": 6,
    "log_every": 1,
    "valid_sentences": 5,
}


def config_of(folder: Path, kind: str, **settings: Any) -> Config:
    model = {"kind": kind, "max_positions": 32, **KINDS[kind], **settings}
    return write_config(folder, f"{kind}.toml", model=model, training=SHORT_RUN)


def saved(folder: Path, config: Config, tokenizer: Tokenizer) -> AnyModel:
    torch.manual_seed(5)
    model = build_model(config.model, tokenizer.source_vocab, tokenizer.target_vocab).eval()
    save_checkpoint(folder, config, tokenizer, model, TrainingProgress(step=3))
    return model


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (
            "rnnenc",
            {"heads": 4},
            "unknown key model.heads; known to kind 'rnnenc' are kind, cell, embedding_dim, dim, lay",
        ),
        ("rnnenc", {"layer": 2}, "unknown key model.layer; did you mean layers?"),
        ("rnnsearch", {"window": 4}, "unknown key model.window; known to kind 'rnnsearch' are kind, cell,"),
        ("transformer", {"cell": "gru"}, "unknown key model.cell; known to kind 'transformer' are kind, preset, dim,"),
        (
            "transformer",
            {"positions": "rotary", "dim": 6},
            "model: positions = 'rotary' needs an even head_dim, got 3",
        ),
        (
            "transformer",
            {"positions": "relative", "score": "additive"},
            "model: positions = 'relative' needs score = 'scaled-dot', got 'additive'",
        ),
        (
            "transformer",
            {"positions": "relative", "relative_buckets": 6},
            "model: relative_buckets must be a multiple of 4, got 6",
        ),
        (
            "transformer",
            {"positions": "relative", "relative_distance": 16},
            "model: relative_distance must be 17 or more, got 16",
        ),
        ("transformer", {"positions": "none", "first_position": 2}, "model: first_position = 2 needs positions = 'sin"),
        (
            "transformer",
            {"norm": "post", "query_norm": True},
            "model: query_norm = true needs norm = 'pre' or 'both', got 'post'",
        ),
        (
            "transformer",
            {"decoder_cell": "ssru", "positions": "rotary"},
            "model: decoder_cell = 'ssru' has no queries and keys to rotate",
        ),
        (
            "transformer",
            {"encoder_attention": "linear", "encoder_window": 3},
            "model: encoder_attention = 'linear' needs encoder_window = 0, got 3",
        ),
        (
            "transformer",
            {"norm": "sandwich", "query_norm": True},
            "model: query_norm = true needs norm = 'pre' or 'both', got 'sandwich'",
        ),
        (
            "transformer",
            {"decoder_window": 3, "decoder_cell": "ssru"},
            "model: decoder_window needs decoder_cell = 'attention', got 'ssru'",
        ),
        (
            "transformer",
            {"decoder_window": 3, "score": "additive"},
            "model: decoder_window needs score = 'scaled-dot', got 'additive'",
        ),
        (
            "transformer",
            {"attention_softcap": 30, "score": "additive"},
            "model: attention_softcap needs score = 'scaled-dot', got 'additive'",
        ),
        (
            "transformer",
            {"attention_softcap": 30, "encoder_attention": "linear"},
            "model: encoder_attention = 'linear' needs attention_softcap = 0, got 30",
        ),
        (
            "transformer",
            {"full_attention_every": 2},
            "model: full_attention_every needs encoder_window or decoder_window, got 2",
        ),
        (
            "transformer",
            {"encoder_attention": "linear", "score": "additive"},
            "model: encoder_attention = 'linear' needs score = 'scaled-dot', got 'additive'",
        ),
        (
            "transformer",
            {"encoder_attention": "linear", "positions": "rotary"},
            "model: encoder_attention = 'linear' needs positions = 'sinusoidal', 'learned' or 'none', got 'rotary'",
        ),
        ("luong", {"preset": "base"}, "unknown key model.preset; known to kind 'luong' are kind, cell,"),
        (
            "luong",
            {"score": "sum"},
            "model.score must be 'dot', 'scaled-dot', 'content', 'additive', 'general', 'concat' or",
        ),
        ("luong", {"window": 0}, "model.window must be greater than or equal to 1, got 0"),
        ("luong", {"dropout": 1e-5}, "model: dropout must be 0 or from 1/65536 to 65535/65536, got 1e-05"),
        (
            "rnnenc",
            {"dim": 8},
            "model: tie = 'all' needs embedding_dim = dim (8), because the output matrix of this kind",
        ),
        ("rnnsearch", {"score": "dot", "dim": 8}, "model: score = 'dot' needs dim = 2 * encoder_dim (16), because it"),
        ("rnnsearch", {"max_positions": 20}, "data.max_tokens must be below model.max_positions (20), got 20"),
    ],
)
def test_a_wrong_setting_of_a_kind_is_one_line(
    tmp_path: Path, kind: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        config_of(tmp_path, kind, **settings)
    assert str(caught.value).startswith(f"{tmp_path / kind}.toml: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_needs_no_other_key_and_is_read_back_the_same(tmp_path: Path, kind: str) -> None:
    config = write_config(tmp_path, model={"kind": kind})
    assert type(config.model) is MODEL_KINDS[kind]
    (tmp_path / "config.json").write_text(config.model_dump_json())
    assert load_config(tmp_path / "config.json") == config


def test_saved_settings_without_a_kind_are_those_of_a_transformer(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    values = json.loads(config.model_dump_json())
    assert values["model"].pop("kind") == "transformer"
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert load_config(tmp_path / "config.json") == config
    assert isinstance(config.model, TransformerSettings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_read_back_and_translates_as_before(tmp_path: Path, tokenizer: Tokenizer, kind: str) -> None:
    model = saved(tmp_path / "c", config_of(tmp_path, kind), tokenizer)
    loaded = load_checkpoint(tmp_path / "c")
    assert type(loaded.model) is type(model)
    assert same(loaded.model.state_dict(), model.state_dict())
    sources, search = [tokenizer.encode_source(text) for text in ("1 2 3", "9 8 7 6 5 4")], SearchSettings(beam_size=2)
    assert translate(loaded.model, sources, search) == translate(model, sources, search)


def test_weights_of_another_kind_are_neither_loaded_nor_averaged(tmp_path: Path, tokenizer: Tokenizer) -> None:
    saved(tmp_path / "c", config_of(tmp_path, "rnnenc"), tokenizer)
    other = saved(tmp_path / "d", config_of(tmp_path, "luong"), tokenizer)
    with pytest.raises(CheckpointError, match=r"c was trained with another model \(model.kind: rnnenc -> luong\)"):
        load_weights(other, tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"are of different models \(model.kind: rnnenc -> luong\)"):
        average_checkpoints([tmp_path / "c", tmp_path / "d"])


def test_settings_of_a_kind_that_change_its_formula_make_another_model(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Neither changes the shape of a weight."""
    saved(tmp_path / "c", config_of(tmp_path, "luong"), tokenizer)
    same_weights = saved(tmp_path / "d", config_of(tmp_path, "luong", dropout=0.5, max_positions=64), tokenizer)
    load_weights(same_weights, tmp_path / "c")
    for change in ({"window": 5}, {"score": "general", "alignment": "global"}):
        other = saved(tmp_path / str(change), config_of(tmp_path, "luong", **change), tokenizer)
        with pytest.raises(CheckpointError, match="c was trained with another model"):
            load_weights(other, tmp_path / "c")


@pytest.mark.parametrize("kind", ["rnnenc", "rnnsearch", "luong"])
def test_a_run_stopped_and_resumed_has_the_weights_of_one_never_stopped(corpus: Path, kind: str) -> None:
    config = config_of(corpus, kind, dropout=0.2)
    whole = train(config, corpus / "whole")
    assert train(config, corpus / "cut", cut=7).interrupted
    resumed = train(config, corpus / "cut")
    assert same(weights_of(resumed), weights_of(whole))
    assert counted(resumed.progress) == counted(whole.progress)


@pytest.mark.parametrize("kind", ["transformer", "rnnsearch", "luong"])
def test_a_run_with_the_diagonal_penalty_attends_nearer_to_the_diagonal(corpus: Path, kind: str) -> None:
    """The task, which reverses a line, rewards the other diagonal."""
    found = {}
    for penalty in (0.0, 10.0):
        model = {"kind": kind, "max_positions": 32, **KINDS[kind], **({"window": 20} if kind == "luong" else {})}
        schedule = {**SHORT_RUN, "max_steps": 60, "accumulate": 1, "valid_every": 60, "learning_rate": 1e-2}
        config = write_config(corpus, model=model, training={**schedule, "diagonal_penalty": penalty})
        trainer = train(config, corpus / f"run {penalty}")
        assert isinstance(trainer.model, AttentionModel)
        batch = encode_pairs(trainer.valid, trainer.tokenizer).batch(range(20))
        weights = trainer.model.eval().attention(*batch[:3]).detach()
        found[penalty] = float(diagonal_penalty(weights, batch.source_lengths, batch.labels)) / batch.tokens
    assert found[10.0] < 0.8 * found[0.0]


def test_the_diagonal_penalty_is_refused_for_a_model_without_attention(tmp_path: Path) -> None:
    message = "training.diagonal_penalty must be 0 for model.kind = 'rnnenc', which has no attention, got 0.5"
    with pytest.raises(SettingsError, match=message):
        write_config(tmp_path, model={"kind": "rnnenc"}, training={"diagonal_penalty": 0.5})


def test_a_run_of_another_kind_is_not_resumed(corpus: Path) -> None:
    train(config_of(corpus, "rnnenc"), corpus / "run", cut=3)
    message = r"was trained with another model \(model.kind: rnnenc -> rnnsearch\); choose another --output"
    with pytest.raises(CheckpointError, match=message):
        train(config_of(corpus, "rnnsearch"), corpus / "run")


ATTENTION_CONFIGS = sorted((ROOT / "configs" / "attention").glob("*.toml"))


@pytest.mark.parametrize("path", ATTENTION_CONFIGS, ids=lambda path: path.name)
def test_a_config_of_the_comparison_says_its_own_weights(path: Path) -> None:
    assert f" {weights_in(path):,} weights" in path.read_text(encoding="utf-8")


def test_the_configs_of_the_comparison_have_every_kind_and_about_as_many_weights() -> None:
    assert {load_config(path).model.kind for path in ATTENTION_CONFIGS} == set(MODEL_KINDS)
    weights = [weights_in(path) for path in ATTENTION_CONFIGS]
    assert max(weights) < 1.06 * min(weights)


def test_the_configs_of_the_comparison_differ_in_the_model_alone() -> None:
    first, *others = (load_config(path).model_dump(exclude={"model"}) for path in ATTENTION_CONFIGS)
    assert all(other == first for other in others)


def weights_in(path: Path) -> int:
    config = load_config(path)
    with torch.device("meta"):
        model = build_model(config.model, config.tokenizer.vocab_size, config.tokenizer.vocab_size)
    return sum(weight.numel() for weight in model.parameters())
