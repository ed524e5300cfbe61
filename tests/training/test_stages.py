"""Stages of a run, tags of corpora, and the moving average of weights."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from lingon.errors import CorpusError, SettingsError
from lingon.training import checkpoint as files
from lingon.training.checkpoint import MovingAverage, TrainingProgress, load_checkpoint
from lingon.training.config import Config, load_config
from lingon.training.trainer import Trainer
from tests.support.training_runs import same, tiny_config_text, train, weights_of

LARGE, SMALL, UPDATES = 300, 40, 30


def write_two_corpora(corpus: Path, stages: str = "", small: str = "", **training: Any) -> Config:
    """Write the config of a run on the digit corpus as `large`, and on its first pairs, uppercase, as `small`."""
    for side in ("source", "target"):
        lines = (corpus / f"train.{side}").read_text().splitlines(keepends=True)[:SMALL]
        (corpus / f"small.{side}").write_text("".join(f"9 {line}" for line in lines))
    few = {"max_steps": UPDATES, "warmup_steps": 5, "cooldown_steps": 0, "batch_tokens": 300, "valid_every": 15}
    text = tiny_config_text(training={**few, "log_every": 5, **training})
    text = text.replace("[[data.train]]\n", '[[data.train]]\nname = "large"\n')
    text += f'\n[[data.train]]\nname = "small"\nsource = "small.source"\ntarget = "small.target"\n{small}\n{stages}'
    (corpus / "config.toml").write_text(text)
    return load_config(corpus / "config.toml")


TWO_STAGES = """
[[training.stage]]
until = 12
weights = { small = 1.0 }

[[training.stage]]
weights = { large = 0.5, small = 0.5 }
"""


def rows_of_updates(trainer: Trainer, updates: int, progress: TrainingProgress | None = None) -> list[list[int]]:
    found = trainer.feed().updates(progress or TrainingProgress())
    return [[int(row) for each in group.requests for row in each.rows] for group, _ in islice(found, updates)]


def test_a_stage_has_its_corpora_in_their_shares(corpus: Path) -> None:
    trained = train(write_two_corpora(corpus, TWO_STAGES), corpus / "run")
    start = int(trained.corpus.corpus_starts[1])
    rows = rows_of_updates(trained, 200)
    assert all(row >= start for update in rows[:12] for row in update)
    later = [row >= start for update in rows[12:] for row in update]
    assert sum(later) / len(later) == pytest.approx(0.5, abs=0.05)
    first = {row for update in rows[12:] for row in update}
    assert first == set(range(len(trained.corpus))), "an epoch of a stage has every pair of its corpora"


def test_a_run_stopped_in_a_stage_or_at_its_end_goes_on_with_the_same_batches(corpus: Path) -> None:
    trained = train(write_two_corpora(corpus, TWO_STAGES), corpus / "run")
    whole = rows_of_updates(trained, 40)
    updates = trained.feed().updates(TrainingProgress())
    for step, (group, _) in enumerate(islice(updates, 20), start=1):
        progress = TrainingProgress(step=step, epoch=group.epoch, block=group.block, batch=group.batch)
        assert rows_of_updates(trained, 3, progress) == whole[step : step + 3], step


@pytest.mark.parametrize("cut", [5, 10, 20])
def test_a_run_with_stages_and_an_average_ends_with_the_same_weights_if_it_is_stopped(corpus: Path, cut: int) -> None:
    config = write_two_corpora(corpus, TWO_STAGES, average_decay=0.9)
    whole = train(config, corpus / "whole")
    train(config, corpus / "cut", cut=cut)
    resumed = train(config, corpus / "cut")
    assert same(weights_of(resumed), weights_of(whole))
    ends = [load_checkpoint(files.saved_steps(corpus / name)[-1]).model for name in ("whole", "cut")]
    assert all(torch.equal(one, other) for one, other in zip(*(each.parameters() for each in ends), strict=True))


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("[[training.stage]]\nuntil = 5\n", r"the last stage must reach max_steps \(30\), got until = 5"),
        ("[[training.stage]]\n[[training.stage]]\n", r"stage\.0\.until is missing: another stage follows"),
        (
            "[[training.stage]]\nuntil = 9\n[[training.stage]]\nuntil = 9\n[[training.stage]]\n",
            r"stage\.until must ascend, got 9, 9",
        ),
        (
            "[[training.stage]]\nweights = { big = 1 }\n",
            r"stage\.0\.weights must name corpora of data\.train: large, small; got 'big'",
        ),
        ("[[training.stage]]\nweights = { small = 0 }\n", r"stage\.0\.weights\.small must be greater than 0, got 0"),
    ],
)
def test_a_wrong_stage_is_refused(corpus: Path, stages: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        write_two_corpora(corpus, stages)


def test_a_stage_without_text_is_refused(corpus: Path) -> None:
    config = write_two_corpora(corpus, "[[training.stage]]\nweights = { small = 1 }\n")
    for side in ("source", "target"):
        (corpus / f"small.{side}").write_text("")
    with pytest.raises(CorpusError, match=r"training\.stage\.0: no pair of small passes the filters"):
        train(config, corpus / "run")


def test_a_tag_is_before_each_source_of_its_corpus_and_is_never_generated(corpus: Path) -> None:
    trained = train(write_two_corpora(corpus, small='tag = "<BT>"'), corpus / "run")
    tag = trained.tokenizer.source.piece_to_id("<BT>")
    assert tag in trained.config.model.never_generated
    start, tagged = int(trained.corpus.corpus_starts[1]), set()
    for group, (batch,) in islice(trained.feed().updates(TrainingProgress()), 10):
        for row, source in zip(group.requests[0].rows, batch.source_ids, strict=True):
            assert (tag in source.tolist()) == (row >= start)
            assert (source[0] == tag) == (row >= start)
            tagged.add(bool(row >= start))
    assert tagged == {True, False}


def test_a_tag_that_the_tokenizer_lacks_is_refused(corpus: Path) -> None:
    first = train(write_two_corpora(corpus), corpus / "first")
    config = write_two_corpora(corpus, small='tag = "<BT>"')
    with pytest.raises(SettingsError, match=r"data\.train\.1\.tag: '<BT>' is no piece of the source vocabulary"):
        train(config, corpus / "second", start=first.folder)


def test_a_moving_average_is_the_weighted_mean_of_the_weights_of_all_updates() -> None:
    model = torch.nn.Linear(3, 2)
    average, expected = MovingAverage(0.5), model.weight.detach().clone()
    average.begin(model)
    for step in range(1, 6):
        with torch.no_grad():
            model.weight.normal_()
        average.add(model, step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach()
    trained = model.weight.detach().clone()
    with average.shown(model):
        torch.testing.assert_close(model.weight.detach(), expected)
    assert torch.equal(model.weight, trained)
