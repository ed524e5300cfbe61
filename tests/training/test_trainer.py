"""The training loop: what it learns, logs, saves and validates, and how it fails."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lingon.errors import CheckpointError, CorpusError, LingonError, SettingsError
from lingon.text import Tokenizer
from lingon.training import checkpoint as files
from lingon.training.checkpoint import TrainingProgress, load_checkpoint, save_checkpoint
from lingon.training.config import OriginSettings, TokenizerSettings, TrainingSettings, load_config
from lingon.training.corpus import Pair
from lingon.training.report import Report
from lingon.training.tokenizer import train_tokenizer
from lingon.training.trainer import learning_rate
from tests.support.training_runs import (
    groups_of_an_epoch,
    log_of,
    same,
    train,
    weights_of,
    write_config,
    write_digit_corpus,
)


def short(**values: Any) -> dict[str, Any]:
    """A run of a few updates."""
    few = {"max_steps": 6, "cooldown_steps": 0, "log_every": 2, "valid_every": 3, "valid_sentences": 5}
    return {"training": {**few, **values}}


def test_the_learning_rate_has_a_linear_warm_up_an_inverse_root_and_a_linear_cooldown() -> None:
    settings = TrainingSettings(learning_rate=0.4, warmup_steps=100, max_steps=1000, cooldown_steps=99)
    assert learning_rate(1, settings) == pytest.approx(0.004)
    assert learning_rate(50, settings) == pytest.approx(0.2)
    assert learning_rate(100, settings) == pytest.approx(0.4)
    assert learning_rate(400, settings) == pytest.approx(0.2)
    assert learning_rate(900, settings) == pytest.approx(0.4 / 3)
    assert learning_rate(951, settings) == pytest.approx(0.4 * math.sqrt(100 / 951) / 2)
    assert learning_rate(1000, settings) == pytest.approx(0.4 * math.sqrt(0.1) / 100)


def test_without_a_cooldown_the_learning_rate_ends_with_the_inverse_root() -> None:
    settings = TrainingSettings(learning_rate=1.0, warmup_steps=100, max_steps=400)
    assert learning_rate(400, settings) == pytest.approx(0.5)


def test_every_figure_is_logged_at_its_step(corpus: Path) -> None:
    train(write_config(corpus, **short()), corpus / "run")
    updates, validations = log_of(corpus / "run", "train"), log_of(corpus / "run", "valid")
    assert [line["step"] for line in updates] == [2, 3, 4, 6]
    assert [line["step"] for line in validations] == [3, 6]
    assert updates[0].keys() == {
        *("kind", "step", "time", "loss", "tokens_per_second", "gradient_norm", "learning_rate", "epoch"),
        *("target_tokens", "seconds"),
    }
    assert 0 < updates[0]["epoch"] < 1
    assert updates[-1]["epoch"] == pytest.approx(3 * updates[0]["epoch"])
    last = validations[-1]
    assert last["perplexity"] == pytest.approx(math.exp(last["loss"]))
    assert last["bleu_signature"].startswith("nrefs:1|case:mixed")
    assert "nc:6" in last["chrf_signature"]
    assert list((corpus / "run" / "tensorboard").iterdir())


def test_a_partial_last_line_is_removed_from_the_log(corpus: Path) -> None:
    (corpus / "run").mkdir()
    for torn in ('{"kind": "train", "st', '{"kind": "train", "step": 7}\n{"ki'):
        (corpus / "run" / "log.jsonl").write_text(torn)
        with Report(corpus / "run", 9, enabled=True) as report:
            report.log_training(8, dict.fromkeys(("loss", "tokens_per_second", "epoch", "target_tokens"), 1.0))
        assert [line["step"] for line in log_of(corpus / "run", "train")] == ([7, 8] if "7" in torn else [8])


def test_a_run_learns(corpus: Path) -> None:
    trainer = train(write_config(corpus, **short(max_steps=80, log_every=10, valid_every=80)), corpus / "run")
    losses = [line["loss"] for line in log_of(corpus / "run", "train")]
    assert losses[-1] < 0.6 * losses[0]
    assert log_of(corpus / "run", "valid")[0]["loss"] < 0.6 * math.log(280)
    assert trainer.progress.target_tokens > 80 * 400


def test_runs_are_equal_with_equal_seeds_and_differ_with_different_seeds(corpus: Path) -> None:
    first, again, other = (
        weights_of(train(write_config(corpus, **short(seed=seed)), corpus / name))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert same(first, again)
    assert not same(first, other)


def test_accumulated_batches_give_the_update_of_one_large_batch(corpus: Path) -> None:
    train(write_config(corpus, **short(max_steps=1, batch_tokens=10_000)), corpus / "one")
    few = train(write_config(corpus, **short(max_steps=1, batch_tokens=1_000)), corpus / "few")
    batches = len(groups_of_an_epoch(few))
    assert batches > 2
    many = train(write_config(corpus, **short(max_steps=1, batch_tokens=1_000, accumulate=batches)), corpus / "many")
    assert log_of(corpus / "one", "train")[0]["loss"] == pytest.approx(log_of(corpus / "many", "train")[0]["loss"])
    norms = [log_of(corpus / name, "train")[0]["gradient_norm"] for name in ("one", "many")]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    assert many.progress.epoch == 0


def test_an_epoch_has_every_pair_however_many_batches_an_update_takes(corpus: Path) -> None:
    config = write_config(corpus, **short(max_steps=5, batch_tokens=300, accumulate=5))
    trained = train(config, corpus / "run")
    assert trained.progress.epoch > 0
    seen = [[int(row) for request in group.requests for row in request.rows] for group in groups_of_an_epoch(trained)]
    assert sorted(row for rows in seen for row in rows) == list(range(len(trained.corpus)))
    assert len(seen[-1]) < len(seen[0]), "the batches do not divide evenly"


def test_accumulate_beyond_the_batches_of_an_epoch_is_rejected(corpus: Path) -> None:
    with pytest.raises(SettingsError, match=r"training\.accumulate must be at most 4, .* got 50"):
        train(write_config(corpus, **short(accumulate=50)), corpus / "run")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"never_generated": [9999]}, "model.never_generated must be below 280, the pieces of a target, got 9999"),
        (
            {"dim": 2**20, "ffn": 2**20, "head_dim": 2**10},
            "the training of 8,847,966,113,792 weights needs 131,845.0 GiB of memory, of which ",
        ),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(corpus: Path, model: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        train(write_config(corpus, model=model, **short()), corpus / "run")
    assert not list((corpus / "run").glob("checkpoints/*"))


def test_a_run_stops_when_patience_runs_out(corpus: Path) -> None:
    settings = short(max_steps=50, valid_every=2, patience=3, learning_rate=1e-9)
    trainer = train(write_config(corpus, **settings), corpus / "run")
    assert trainer.progress.step == 8  # the first validation is the best, three more are not better
    assert (trainer.progress.best_step, trainer.progress.stale) == (2, 3)
    assert load_checkpoint(corpus / "run").progress.step == 2
    assert train(write_config(corpus, **settings), corpus / "run").progress.step == 8


def test_only_the_best_and_the_last_checkpoints_are_kept(corpus: Path) -> None:
    settings = short(max_steps=12, valid_every=2, keep_checkpoints=2, learning_rate=1e-9)
    train(write_config(corpus, **settings), corpus / "run")
    assert [int(folder.name[5:]) for folder in files.saved_steps(corpus / "run")] == [2, 10, 12]


def test_fine_tuning_starts_with_the_weights_and_the_tokenizer_of_a_checkpoint(corpus: Path) -> None:
    first = train(write_config(corpus, **short()), corpus / "first")
    write_digit_corpus(corpus, pairs=200, seed=9)
    tuned = train(write_config(corpus, **short(learning_rate=1e-12)), corpus / "tuned", start=corpus / "first")
    assert tuned.tokenizer.files() == first.tokenizer.files()
    assert tuned.progress.step == 6
    best = load_checkpoint(corpus / "first").model.state_dict()
    for name, weight in weights_of(tuned).items():
        torch.testing.assert_close(weight, best[name], atol=1e-9, rtol=0)


def test_a_missing_init_from_fails_before_text_is_read_and_is_ignored_when_a_run_resumes(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(corpus, **short(max_steps=1))
    with pytest.raises(CheckpointError, match="absent: neither a checkpoint"):
        train(config, corpus / "run", start=corpus / "absent")
    assert "training text" not in capsys.readouterr().err
    train(config, corpus / "run")
    train(config, corpus / "run", start=corpus / "absent")
    message = r"--init-from .*absent is ignored: the run resumes from .*step-00000001"
    assert re.search(message, capsys.readouterr().err)


def test_fine_tuning_keeps_the_origin_the_frame_and_what_is_never_generated_unless_the_config_sets_it(
    corpus: Path,
) -> None:
    start = train(write_config(corpus, **short()), corpus / "first")
    origin = OriginSettings(form="Marian", licence="CC-BY-4.0", files={"model.npz": "0" * 64})
    model = start.config.model.model_copy(update={"never_generated": (7, 9)})
    frame = start.config.tokenizer.model_copy(update={"source_end": False})
    imported = start.config.model_copy(update={"origin": origin, "model": model, "tokenizer": frame})
    save_checkpoint(corpus / "imported", imported, start.tokenizer, start.model, TrainingProgress())
    for given, expected in (({}, (7, 9)), ({"never_generated": [8]}, (8,))):
        config = write_config(corpus, **{**short(), "model": given})
        run = corpus / f"tuned-{expected[0]}"
        for begun in (corpus / "imported", None):  # then resumed
            tuned = train(config, run, start=begun)
            for kept in (tuned.config, load_checkpoint(run).config):
                assert (kept.origin, kept.model.never_generated) == (origin, expected)
                assert not kept.tokenizer.source_end
            assert not tuned.tokenizer.source_end
            assert tuned.model.settings.never_generated == expected
        assert load_config(run / files.CONFIG) == tuned.config


def test_fine_tuning_with_another_model_is_rejected(corpus: Path) -> None:
    train(write_config(corpus, **short()), corpus / "first")
    other = write_config(corpus, **{**short(), "model": {"ffn": 128}})
    with pytest.raises(CheckpointError, match=r"first.* was trained with another model \(model\.ffn: 64 -> 128\)"):
        train(other, corpus / "tuned", start=corpus / "first")


def test_tokenizer_path_is_used_instead_of_training_one(corpus: Path, tokenizer: Tokenizer) -> None:
    (corpus / "words").mkdir()
    for name, content in tokenizer.files().items():
        (corpus / "words" / name).write_bytes(content)
    config = write_config(corpus, **{**short(), "tokenizer": {"path": "words", "vocab_size": 100}})
    assert train(config, corpus / "run").tokenizer.files() == tokenizer.files()


def test_separate_vocabularies_are_trained_and_kept(corpus: Path) -> None:
    settings = {**short(), "tokenizer": {"joint": False, "vocab_size": 275}, "model": {"tie": "decoder"}}
    train(write_config(corpus, **settings), corpus / "run")
    assert load_checkpoint(corpus / "run").tokenizer.files().keys() == {"source.model", "target.model"}


def test_a_new_run_in_an_old_folder_removes_the_old_tokenizer(corpus: Path) -> None:
    with pytest.raises(SettingsError, match=r"training\.accumulate"):
        train(write_config(corpus, **short(accumulate=50)), corpus / "run")
    assert (corpus / "run" / "tokenizer.model").exists()
    settings = {**short(), "tokenizer": {"joint": False, "vocab_size": 275}, "model": {"tie": "decoder"}}
    with pytest.raises(SettingsError, match=r"tokenizer\.joint: true -> false"):
        train(write_config(corpus, **settings), corpus / "run")
    shutil.rmtree(corpus / "run" / "corpus")
    trained = train(write_config(corpus, **settings), corpus / "run").tokenizer
    assert trained.files().keys() == {"source.model", "target.model"}
    assert not (corpus / "run" / "tokenizer.model").exists()


def test_a_tokenizer_that_contradicts_tokenizer_joint_is_rejected(corpus: Path) -> None:
    separate = train_tokenizer([Pair("a b c", "c b a")] * 9, TokenizerSettings(joint=False, vocab_size=264))
    for name, content in separate.files().items():
        (corpus / name).write_bytes(content)
    config = write_config(corpus, **{**short(), "tokenizer": {"path": "."}})
    with pytest.raises(SettingsError, match=r"tokenizer\.joint = true, but .* has one for each language"):
        train(config, corpus / "run")


def test_validation_pairs_that_cannot_be_scored_are_dropped_and_counted(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in ("source", "target"):
        with (corpus / f"valid.{side}").open("a") as file:
            file.write("\n" + "1 2 " * 60 + "\n")
    train(write_config(corpus, **short()), corpus / "run")
    note = "validation text: 50 pairs; dropped 2 empty or longer than data.max_tokens = 20"
    assert note in capsys.readouterr().err.splitlines()


def test_a_validation_set_without_a_usable_pair_is_an_error(corpus: Path) -> None:
    for side in ("source", "target"):
        (corpus / f"valid.{side}").write_text("\n\n")
    with pytest.raises(CorpusError, match=r"valid\.source: none of 2 validation pairs can be scored"):
        train(write_config(corpus, **short()), corpus / "run")


def test_a_missing_corpus_fails_before_training(corpus: Path) -> None:
    config = write_config(corpus, **short())
    (corpus / "train.target").unlink()
    with pytest.raises(CorpusError, match=r"train\.target: No such file"):
        train(config, corpus / "run")
    assert list((corpus / "run").iterdir()) == []


@pytest.mark.parametrize("valid_every", [1, 20])
def test_a_loss_that_is_not_finite_ends_the_run_without_a_checkpoint(corpus: Path, valid_every: int) -> None:
    rate = {"learning_rate": 1e30, "warmup_steps": 1, "max_steps": 20, "valid_every": valid_every, "log_every": 5}
    harm = {1: r"the validation loss at step 1 is", 20: r"the loss at step 2 is"}[valid_every]
    with pytest.raises(LingonError, match=rf"{harm} nan; lower training\.learning_rate"):
        train(write_config(corpus, **short(**rate)), corpus / "run")
    assert files.saved_steps(corpus / "run") == []


def harmed_by(corpus: Path, step: int, harm: Callable[[Tensor], None]) -> str:
    """Return the error of a run of six updates, with a checkpoint at 3 and an invalid gradient at a step."""
    seen: list[int] = []

    def count(weight: Tensor) -> None:
        seen.append(1)
        if len(seen) == step:
            harm(weight)

    with pytest.raises(LingonError) as caught:
        train(
            write_config(corpus, **short()),
            corpus / "run",
            before=lambda trainer: trainer.model.output.weight.register_post_accumulate_grad_hook(count),
        )
    return str(caught.value)


def test_a_gradient_that_is_not_finite_ends_the_run_without_a_checkpoint(corpus: Path) -> None:
    def harm(weight: Tensor) -> None:
        weight.grad = torch.full_like(weight, math.inf)

    message = harmed_by(corpus, 6, harm)
    assert "the gradient's norm at step 6 is inf; lower training.learning_rate" in message
    assert f"resumes from {files.step_folder(corpus / 'run', 3)}; remove it if it has diverged too" in message
    assert [path.name for path in files.saved_steps(corpus / "run")] == ["step-00000003"]


def test_weights_that_are_not_finite_are_not_saved(corpus: Path) -> None:
    def harm(weight: Tensor) -> None:
        weight.data[0, 0] = math.nan

    message = harmed_by(corpus, 6, harm)
    assert "embedding.pieces.weight after step 6 has a value that is not finite" in message
    assert [path.name for path in files.saved_steps(corpus / "run")] == ["step-00000003"]


def test_messages_are_not_wrapped(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(write_config(corpus, **short()), corpus / "run")
    lines = capsys.readouterr().err.splitlines()
    (shown,) = (line for line in lines if line.startswith("BLEU is "))
    assert len(shown) > 100
