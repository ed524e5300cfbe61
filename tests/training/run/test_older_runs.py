"""A run that began before text could be of several pairs of languages goes on as if nothing had changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lingon.training import checkpoint as files
from lingon.training.config import TrainingSettings
from lingon.training.data.corpus import Pair
from lingon.training.run.setup import _validation_digest
from tests.support.training_runs import same, train, weights_of, write_config

FEW = {"max_steps": 12, "warmup_steps": 5, "cooldown_steps": 0, "batch_tokens": 300, "valid_every": 6, "log_every": 1}


def as_older_versions_wrote(path: Path) -> None:
    """Write saved settings with one validation text, and without the keys that several pairs have."""
    values = json.loads(path.read_text())
    del values["data"]["temperature"]
    (values["data"]["valid"],) = values["data"]["valid"]
    for corpus in (*values["data"]["train"], values["data"]["valid"]):
        del corpus["source_language"], corpus["target_language"]
    path.write_text(json.dumps(values))


def test_a_run_that_an_older_version_began_is_resumed_unchanged(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(corpus, model={"dropout": 0.2}, training=FEW)
    whole = train(config, corpus / "whole")
    train(config, corpus / "cut", cut=7)
    capsys.readouterr()
    for folder in files.saved_steps(corpus / "cut"):
        as_older_versions_wrote(folder / files.CONFIG)
    resumed = train(config, corpus / "cut")
    said = capsys.readouterr().err
    assert "resumes after step 8" in said
    assert "changed since then" not in said
    assert same(weights_of(resumed), weights_of(whole))


def test_the_digest_of_validation_text_of_one_pair_is_that_of_older_versions() -> None:
    pairs, settings = [Pair("one", "eins"), Pair("two", "zwei")], TrainingSettings(valid_sentences=10)
    expected = "27a78ac3490bb46c57d32a2a83a0164ca1578982b320d79e49292940a9c07ce5"
    assert _validation_digest(pairs, settings) == expected
    french = [pair._replace(languages=("en", "fr")) for pair in pairs]
    assert _validation_digest(french, settings) != expected
