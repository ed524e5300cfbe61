"""Runs with guided alignment: what they learn, what they refuse, how they resume, and what their bundle aligns with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from lingon.alignment import LinkCounts, agreement, piece_links, read_links, word_links
from lingon.errors import CorpusError, SettingsError
from lingon.serving.translation.replies import spans
from lingon.training.batches import encode_pairs
from lingon.training.checkpoint import load_checkpoint
from lingon.training.config import Config, load_config, parse_config
from lingon.training.corpus import read_pairs
from lingon.training.models.interface import AttentionModel
from lingon.training.trainer import Trainer
from tests.support.training_runs import counted, same, train, weights_of, write_config

KINDS: dict[str, dict[str, Any]] = {
    "transformer": {"preset": "tiny", "norm": "pre", "dropout": 0.0},
    "rnnsearch": {"dim": 32, "embedding_dim": 32, "encoder_dim": 16, "attention_dim": 16},
    "luong": {"dim": 32, "embedding_dim": 32, "layers": 1},
}
RUN = {
    "max_steps": 80,
    "warmup_steps": 20,
    "cooldown_steps": 20,
    "batch_tokens": 300,
    "learning_rate": 1e-2,
    "valid_every": 80,
    "valid_sentences": 5,
}


def write_links(folder: Path) -> None:
    """Write the links of the training and the validation text, whose targets are the reversed sources."""
    for name in ("train", "valid"):
        lines = (folder / f"{name}.source").read_text(encoding="utf-8").splitlines()
        counts = [len(line.split()) for line in lines]
        links = [" ".join(f"{word}-{count - 1 - word}" for word in range(count)) for count in counts]
        (folder / f"{name}.align").write_text("".join(f"{line}\n" for line in links), encoding="utf-8")


def guided_config(folder: Path, weight: float, kind: str = "transformer", **training: Any) -> Config:
    """Return the settings of a run on the digit corpus in folder, with its links."""
    write_links(folder)
    model = {"kind": kind, "max_positions": 32, **KINDS[kind]}
    config = write_config(folder, model=model, training={**RUN, **training})
    values = config.model_dump()
    values["data"]["train"][0]["alignment"] = folder / "train.align"
    values["training"]["guided_alignment"] = weight
    return Config.model_validate(values)


def agreement_of(trainer: Trainer, folder: Path) -> LinkCounts:
    """Compare the links of the guided heads on the validation text with the right ones."""
    pairs = read_pairs(trainer.config.data.valid[0])
    model, tokenizer, total = trainer.model.eval(), trainer.tokenizer, LinkCounts()
    assert isinstance(model, AttentionModel)
    layer, heads = trainer.config.guided
    for pair, gold in zip(pairs, read_links(folder / "valid.align"), strict=True):
        batch = encode_pairs([pair], tokenizer).batch([0])
        weights = model.attention(*batch[:3])[0, layer, list(heads)].mean(dim=0).detach()
        sources, targets = (
            spans([piece.surface for piece in processor.encode(text, return_type="proto").pieces])
            for processor, text in ((tokenizer.source, pair.source), (tokenizer.target, pair.target))
        )
        attended = weights[: len(targets)].argmax(dim=1).tolist()
        pieces = [(sources[source], targets[target]) for source, target in piece_links(attended, len(sources))]
        total += agreement(word_links(pieces, pair.source, pair.target), gold)
    return total


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_guided_run_aligns_as_it_was_told_and_another_does_not(corpus: Path, kind: str) -> None:
    guided, free = (train(guided_config(corpus, weight, kind), corpus / f"run {weight}") for weight in (4.0, 0.0))
    assert agreement_of(guided, corpus).error_rate < 0.7 * agreement_of(free, corpus).error_rate


def short(folder: Path, **training: Any) -> Config:
    config = guided_config(folder, 0.5, **{"max_steps": 12, "warmup_steps": 5, "cooldown_steps": 4, **training})
    return config.model_copy(update={"tokenizer": config.tokenizer.model_copy(update={"sampling_alpha": 0.3})})


def test_a_guided_run_stopped_and_resumed_has_the_weights_of_one_never_stopped(corpus: Path) -> None:
    config = short(corpus, log_every=1)
    whole = train(config, corpus / "whole")
    assert train(config, corpus / "cut", cut=7).interrupted
    resumed = train(config, corpus / "cut")
    assert same(weights_of(resumed), weights_of(whole))
    assert counted(resumed.progress) == counted(whole.progress)


def test_a_change_of_the_links_is_refused_and_reported_once_the_corpus_is_prepared_again(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = short(corpus, log_every=1)
    assert train(config, corpus / "run", cut=3).interrupted
    lines = (corpus / "train.align").read_text(encoding="utf-8").splitlines()
    (corpus / "train.align").write_text("\n".join(["0-0", *lines[1:], ""]), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"train\.align has changed"):
        train(config, corpus / "run")
    shutil.rmtree(corpus / "run" / "corpus")
    train(config, corpus / "run")
    assert "changed since then: the pairs of the training text" in capsys.readouterr().err


def test_a_text_without_a_link_is_refused(corpus: Path) -> None:
    config = short(corpus)
    (corpus / "train.align").write_text("\n" * 300, encoding="utf-8")
    with pytest.raises(CorpusError, match=r"train\.align: none of 298 pairs .* link$"):
        train(config, corpus / "run")


def test_the_alignment_file_is_relative_to_the_config_and_is_not_read_without_guidance(corpus: Path) -> None:
    """`write_config` appends the corpora last, so that a line after them belongs to the validation text."""
    write_config(corpus, training={**RUN, "max_steps": 12, "cooldown_steps": 4})
    text = (corpus / "config.toml").read_text(encoding="utf-8")
    named = text.replace('target = "train.target"', 'target = "train.target"\nalignment = "missing.align"')
    (corpus / "config.toml").write_text(named, encoding="utf-8")
    config = load_config(corpus / "config.toml")
    assert config.data.train[0].alignment == corpus / "missing.align"
    assert train(config, corpus / "run").progress.step == 12
    with pytest.raises(CorpusError, match=r"missing\.align: No such file or directory$"):
        train(load_config(corpus / "config.toml", ["training.guided_alignment=1"]), corpus / "other")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training": {"guided_layer": 2}}, "training.guided_layer must be 0 to 1 for this model, got 2"),
        ({"training": {"guided_heads": [0, 2]}}, r"training.guided_heads must be 0 to 1 for this model, got \[0, 2\]"),
        ({"training": {"guided_heads": [1, 1]}}, r"training: guided_heads must name a head once, got \[1, 1\]"),
        ({"training": {"guided_heads": []}}, "training.guided_heads needs at least one entry, got"),
        ({"model": {"kind": "rnnsearch"}, "training": {"guided_heads": [1]}}, "guided_heads must be 0 to 0"),
        ({"model": {"kind": "rnnenc"}}, "training.guided_alignment must be 0 for model.kind = 'rnnenc', which has no"),
    ],
)
def test_guidance_of_a_layer_or_head_that_the_model_does_not_have_is_refused(
    corpus: Path, change: dict[str, Any], message: str
) -> None:
    values = guided_config(corpus, 0.5).model_dump()
    values["model"] = change.get("model", values["model"])
    values["training"] |= change.get("training", {})
    with pytest.raises(SettingsError, match=message):
        parse_config(values, "config")


def test_guidance_without_an_alignment_file_is_refused(corpus: Path) -> None:
    message = r"training.guided_alignment = 0.5 needs data.train.0.alignment, a file of word alignments$"
    with pytest.raises(SettingsError, match=message):
        write_config(corpus, training={"guided_alignment": 0.5})


def test_an_alignment_of_the_validation_text_is_refused(corpus: Path) -> None:
    values = guided_config(corpus, 0.5).model_dump()
    values["data"]["valid"][0]["alignment"] = "valid.align"
    with pytest.raises(SettingsError, match=r"valid.alignment must be left out: only training is guided"):
        parse_config(values, "config")


def test_a_checkpoint_names_the_guided_heads_by_default_one_of_the_last_layer_but_one(corpus: Path) -> None:
    train(short(corpus, guided_layer=1, guided_heads=[1]), corpus / "run")
    assert load_checkpoint(corpus / "run").config.guided == (1, (1,))
    assert guided_config(corpus, 0.5).guided == (0, (0,))
