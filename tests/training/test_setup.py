"""Runs that are stopped, resumed and begun by older code: the same bits, and one clear line for what has changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import CheckpointError, LingonError, SettingsError
from lingon.training import checkpoint as files
from lingon.training.checkpoint import TrainingProgress, load_checkpoint
from lingon.training.cli import average
from lingon.training.config import TokenizerSettings, TrainingSettings
from lingon.training.corpus import Pair
from lingon.training.interrupt import Interrupt
from lingon.training.setup import _validation_digest, open_run
from lingon.training.tokenizer import train_tokenizer
from lingon.training.trainer import outcome
from tests.support.training_runs import (
    counted,
    log_of,
    same,
    start_train,
    tiny_config_text,
    train,
    weights_of,
    write_config,
)

ALL_THAT_DRAWS: dict[str, Any] = {
    "model": {"dropout": 0.2},
    "tokenizer": {"sampling_alpha": 0.3},
    "training": {
        "max_steps": 24,
        "warmup_steps": 10,
        "cooldown_steps": 5,
        "batch_tokens": 300,
        "accumulate": 2,
        "log_every": 1,
        "valid_every": 10,
        "valid_sentences": 10,
    },
}


def with_training(**values: Any) -> dict[str, Any]:
    return {**ALL_THAT_DRAWS, "training": {**ALL_THAT_DRAWS["training"], **values}}


def stored(run: Path, step: int) -> list[bytes]:
    folder = files.step_folder(run, step)
    return [(folder / name).read_bytes() for name in (files.MODEL, files.OPTIMIZER)]


@pytest.mark.parametrize(("precision", "cut"), [("fp32", 3), ("fp32", 14), ("bf16", 14), ("fp16", 14)])
def test_a_run_stopped_and_resumed_has_the_weights_of_one_never_stopped(corpus: Path, precision: str, cut: int) -> None:
    config = write_config(corpus, **with_training(precision=precision))
    whole = train(config, corpus / "whole")
    begun = train(config, corpus / "cut", cut=cut)
    assert begun.interrupted
    assert begun.progress.batch > 0
    assert begun.progress.step == cut + 1
    resumed = train(config, corpus / "cut")
    assert same(weights_of(resumed), weights_of(whole))
    assert stored(corpus / "cut", 24) == stored(corpus / "whole", 24)
    assert counted(resumed.progress) == counted(whole.progress)
    logged = ("step", "loss", "learning_rate", "gradient_norm", "epoch")
    assert [[line[name] for name in logged] for line in log_of(corpus / "cut", "train")] == [
        [line[name] for name in logged] for line in log_of(corpus / "whole", "train")
    ]


def test_a_run_in_bf16_is_one_in_fp32_where_bf16_is_slow(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingon.training.setup._cpuinfo", lambda: "flags : avx2")
    exact, fast = (
        train(write_config(corpus, **with_training(precision=precision, max_steps=6)), corpus / precision)
        for precision in ("fp32", "bf16")
    )
    assert fast.config.training.precision == "fp32"
    assert same(weights_of(fast), weights_of(exact))


def test_the_stop_is_within_an_epoch_and_the_run_has_several_epochs(corpus: Path) -> None:
    whole = train(write_config(corpus, **ALL_THAT_DRAWS), corpus / "whole")
    assert whole.progress.epoch >= 2
    assert whole.progress.batch > 0


def test_a_validation_that_an_interrupt_skipped_runs_after_the_resume(corpus: Path) -> None:
    config = write_config(corpus, **ALL_THAT_DRAWS)
    train(config, corpus / "run", cut=9)  # stops at step 10, where a validation is due
    assert log_of(corpus / "run", "valid") == []
    assert not (corpus / "run" / files.BEST).exists()
    assert load_checkpoint(corpus / "run").progress.step == 10
    train(config, corpus / "run")
    assert [line["step"] for line in log_of(corpus / "run", "valid")] == [10, 20, 24]


def test_the_checkpoint_of_an_interrupt_does_not_count_and_goes_with_the_next_one(corpus: Path) -> None:
    # With this learning rate no validation is better than the first one.
    config = write_config(corpus, **with_training(valid_every=5, keep_checkpoints=2, learning_rate=1e-9))
    for cut, kept in ((16, [5, 10, 15, 17]), (18, [5, 10, 15, 19]), (-1, [5, 20, 24])):
        train(config, corpus / "run", cut=cut)
        assert [int(folder.name[5:]) for folder in files.saved_steps(corpus / "run")] == kept


def test_an_interrupt_changes_no_average_of_the_last_checkpoints(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(write_config(corpus, **with_training(valid_every=5)), corpus / "run", cut=11)
    average([corpus / "run"], corpus / "mean", last=2)
    assert "average of step-00000005, step-00000010\n" in capsys.readouterr().out
    assert load_checkpoint(corpus / "mean").progress.step == 10


def test_a_run_stopped_at_its_last_update_is_done_only_after_its_validation(corpus: Path) -> None:
    config = write_config(corpus, **with_training(max_steps=6))
    stopped = train(config, corpus / "run", cut=5)
    assert stopped.progress.step == 6
    with pytest.raises(LingonError, match=r"after step 6; .*resume"):
        outcome(stopped)
    again = train(config, corpus / "run")
    assert outcome(again).startswith("ended after step 6; best BLEU ")
    assert (again.progress.best_step, load_checkpoint(corpus / "run").progress.validated) == (6, 6)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_requests_a_stop_and_the_second_ends_the_process(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    kinds = (signal.SIGINT, signal.SIGTERM)
    before, interrupt = [signal.getsignal(kind) for kind in kinds], Interrupt()
    try:
        interrupt.install_handlers()
        signal.raise_signal(number)
        assert interrupt.requested
        assert [signal.getsignal(kind) for kind in kinds] == [signal.SIG_DFL] * 2
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
    assert "stops and saves after the next update; a second signal ends it at once" in capfd.readouterr().err


def test_a_signal_requests_a_stop_even_if_standard_error_is_closed() -> None:
    script = (
        "import os, signal\nfrom lingon.training.interrupt import Interrupt\n"
        "interrupt = Interrupt()\ninterrupt.install_handlers()\nsignal.raise_signal(signal.SIGINT)\n"
        "os._exit(not interrupt.requested)"
    )
    read, write = os.pipe()
    os.close(read)
    try:
        assert subprocess.run([sys.executable, "-c", script], stderr=write, timeout=60).returncode == 0
    finally:
        os.close(write)


@pytest.mark.parametrize("name", [files.OPTIMIZER, files.MODEL])
def test_a_damaged_checkpoint_is_named_with_what_to_do(corpus: Path, name: str) -> None:
    config = write_config(corpus, **with_training(max_steps=4, valid_every=2, cooldown_steps=1))
    train(config, corpus / "run")
    first, last = files.saved_steps(corpus / "run")
    (last / name).write_bytes((last / name).read_bytes()[:9])
    with pytest.raises(CheckpointError) as caught:
        train(config, corpus / "run")
    told = f"; remove {last} and run the same command again to resume from {first.name}"
    assert str(caught.value).startswith(f"{last / name}: ")
    assert str(caught.value).endswith(told)
    shutil.rmtree(last)
    assert train(config, corpus / "run").progress.step == 4
    shutil.rmtree(first)
    (last / name).write_bytes((last / name).read_bytes()[:9])
    with pytest.raises(CheckpointError, match="to begin again, as the run has no other checkpoint"):
        train(config, corpus / "run")


def test_a_finished_run_does_not_change(corpus: Path) -> None:
    config = write_config(corpus, **with_training(max_steps=6))
    first = train(config, corpus / "run")
    again = train(config, corpus / "run")
    assert same(weights_of(again), weights_of(first))
    assert [line["step"] for line in log_of(corpus / "run", "train")] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in log_of(corpus / "run", "valid")] == [6]


def test_a_finished_run_resumes_with_a_larger_max_steps(corpus: Path) -> None:
    train(write_config(corpus, **with_training(max_steps=6)), corpus / "run")
    longer = train(write_config(corpus, **with_training(max_steps=9)), corpus / "run")
    assert longer.progress.step == 9


def test_a_run_is_not_resumed_with_another_model(corpus: Path) -> None:
    train(write_config(corpus, **with_training(max_steps=6)), corpus / "run")
    before = (corpus / "run" / files.CONFIG).read_bytes()
    other = write_config(corpus, **{**with_training(max_steps=9), "model": {"ffn": 32}})
    with pytest.raises(CheckpointError, match=r"another model \(model\.ffn: 64 -> 32\)"):
        train(other, corpus / "run")
    assert (corpus / "run" / files.CONFIG).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 281}, "tokenizer.vocab_size must stay 280, as {} has its tokenizer already, got 281"),
        ({"kind": "bpe"}, "tokenizer.kind must stay unigram, as {} has its tokenizer already, got bpe"),
        (
            {"byte_fallback": False},
            "tokenizer.byte_fallback must stay true, as {} has its tokenizer already, got false",
        ),
        ({"path": "words"}, "tokenizer.path must stay unset, as {} has its tokenizer already, got {}"),
    ],
)
def test_a_run_is_not_resumed_with_another_tokenizer(corpus: Path, change: dict[str, Any], message: str) -> None:
    train(write_config(corpus, **with_training(max_steps=6)), corpus / "run")
    before = (corpus / "run" / files.CONFIG).read_bytes()
    pieces = train_tokenizer([Pair("1 2 3", "3 2 1")] * 9, TokenizerSettings(vocab_size=264))
    (corpus / "words").mkdir()
    (corpus / "words" / "tokenizer.model").write_bytes(pieces.files()["tokenizer.model"])
    other = write_config(corpus, **{**with_training(max_steps=9), "tokenizer": change})
    expected = f"{message.format(corpus / 'run', corpus / 'words')}; set it back, or choose another --output"
    with pytest.raises(SettingsError) as caught:
        train(other, corpus / "run")
    assert str(caught.value) == expected
    assert (corpus / "run" / files.CONFIG).read_bytes() == before


def test_a_run_resumes_with_its_own_tokenizer_in_another_place_and_with_another_sampling(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(write_config(corpus, **with_training(max_steps=6)), corpus / "run")
    (corpus / "moved").mkdir()
    shutil.copy(corpus / "run" / "tokenizer.model", corpus / "moved")
    changed = {"path": "moved", "sampling_alpha": 0.2}
    train(write_config(corpus, **{**with_training(max_steps=9), "tokenizer": changed}), corpus / "run")
    said = capsys.readouterr().err
    assert (
        f"changed since then: tokenizer.path: None -> {corpus / 'moved'}; tokenizer.sampling_alpha: 0.3 -> 0.2" in said
    )


def test_a_run_resumes_from_an_older_checkpoint_if_the_last_was_removed(corpus: Path) -> None:
    config = write_config(corpus, **with_training(max_steps=6, valid_every=2, learning_rate=1e-9))
    train(config, corpus / "run")
    files.mark_best(corpus / "run", files.step_folder(corpus / "run", 6), {})
    files.remove_checkpoint(files.step_folder(corpus / "run", 6))
    train(config, corpus / "run")
    assert [int(folder.name[5:]) for folder in files.saved_steps(corpus / "run")] == [2, 4, 6]
    assert load_checkpoint(corpus / "run").progress.step == 2  # no other was better


def test_settings_that_do_not_affect_weights_may_change_on_resume_and_are_reported(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(write_config(corpus, **with_training(max_steps=6)), corpus / "run")
    other = write_config(corpus, **{**with_training(max_steps=8), "model": {"dropout": 0.1, "max_positions": 40}})
    assert train(other, corpus / "run").progress.step == 8
    message = "changed since then: model.max_positions: 32 -> 40; model.dropout: 0.2 -> 0.1; training.max_steps: 6 -> 8"
    assert message in capsys.readouterr().err


def test_a_change_of_the_training_text_is_refused_and_reported_once_the_corpus_is_prepared_again(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for steps, message in (
        (6, ""),
        (7, "max_steps: 6 -> 7\n"),
        (8, "max_steps: 7 -> 8; the pairs of the training text\n"),
    ):
        if steps == 8:
            for side in ("source", "target"):
                path = corpus / f"train.{side}"
                first, second, *others = path.read_text().splitlines()
                path.write_text("\n".join([second, first, *others]))
            with pytest.raises(SettingsError, match=r"train\.source has changed; .*train\.target has changed"):
                train(write_config(corpus, **with_training(max_steps=steps)), corpus / "run")
            shutil.rmtree(corpus / "run" / "corpus")
        train(write_config(corpus, **with_training(max_steps=steps)), corpus / "run")
        _, _, changed = capsys.readouterr().err.partition("changed since then: training.")
        assert changed.startswith(message)


@pytest.mark.parametrize("change", ["text", "sentences"])
def test_after_a_change_of_what_validations_measure_the_next_one_is_the_best(
    corpus: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    first = train(write_config(corpus, **with_training(max_steps=12, valid_every=6)), corpus / "run")
    unchanged = train(write_config(corpus, **with_training(max_steps=18, valid_every=6)), corpus / "run")
    assert "what validations measure" not in capsys.readouterr().err
    assert (unchanged.progress.best_loss, unchanged.progress.best_step) != (0.0, 0)
    if change == "text":
        (corpus / "valid.target").write_text("".join(reversed((corpus / "valid.target").read_text().splitlines(True))))
        shutil.rmtree(corpus / "run" / "corpus")  # whose text has none of the validation text
    more = {"valid_sentences": 5} if change == "sentences" else {}
    progress = train(
        write_config(corpus, **with_training(max_steps=24, valid_every=6, **more)), corpus / "run"
    ).progress
    assert "what validations measure: the next one is the best so far" in capsys.readouterr().err
    assert progress.best_step == 24 > first.progress.best_step
    assert files.resolve_checkpoint(corpus / "run").name.endswith("24")


def test_a_checkpoint_that_a_kill_kept_from_its_removal_goes_at_the_resume(corpus: Path) -> None:
    """Otherwise `lingon average` of the run would count it."""
    config = write_config(corpus, **with_training(max_steps=18, valid_every=6, keep_checkpoints=1))
    train(config, corpus / "run")
    kept = files.saved_steps(corpus / "run")
    assert len(kept) < 3
    shutil.copytree(kept[-1], files.step_folder(corpus / "run", 1))
    files.save_progress(files.step_folder(corpus / "run", 1), TrainingProgress(step=1, validated=1))
    train(config, corpus / "run")
    assert files.saved_steps(corpus / "run") == kept


def test_a_finished_run_has_no_best_score_after_a_change_of_what_validations_measure(corpus: Path) -> None:
    train(write_config(corpus, **with_training(max_steps=6, valid_every=6)), corpus / "run")
    trainer = train(
        write_config(corpus, **with_training(max_steps=6, valid_every=6, valid_sentences=5)), corpus / "run"
    )
    assert outcome(trainer) == "ended after step 6; not validated since a change of what validations measure"


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_stopped_by_a_signal_exits_with_128_plus_the_signal_and_resumes_exactly(
    corpus: Path, number: signal.Signals, exit_code: int
) -> None:
    write_config(corpus, **with_training(max_steps=100_000, valid_every=60))
    errors, command = corpus / "errors", (corpus / "config.toml", "--output", corpus / "cut")
    process = start_train(errors, *command)
    log = corpus / "cut" / "log.jsonl"
    while process.is_alive() and (not log.exists() or log.read_text().count("\n") < 20):
        time.sleep(0.01)
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == exit_code
    stopped = load_checkpoint(files.saved_steps(corpus / "cut")[-1]).progress.step
    assert stopped >= 20
    assert errors.read_text().splitlines()[-1] == (
        f"lingon: stopped by a signal after step {stopped}; run the same command again to resume"
    )
    config = write_config(corpus, **with_training(max_steps=stopped + 20, valid_every=60))
    finished = start_train(errors, *command)
    finished.join(60)
    assert finished.exitcode == 0
    assert f"resumes after step {stopped}" in errors.read_text()
    assert train(config, corpus / "whole").progress.step == stopped + 20
    assert stored(corpus / "cut", stopped + 20) == stored(corpus / "whole", stopped + 20)


def test_a_kill_loses_no_more_than_the_updates_since_the_last_checkpoint(corpus: Path) -> None:
    (corpus / "config.toml").write_text(tiny_config_text(**with_training(max_steps=5000, valid_every=20)))
    process = start_train(corpus / "errors", corpus / "config.toml", "--output", corpus / "run")
    while process.is_alive() and len(files.saved_steps(corpus / "run")) < 2:
        time.sleep(0.005)
    process.kill()
    process.join()
    for folder in files.saved_steps(corpus / "run"):
        load_checkpoint(folder)
    left_over = corpus / "run" / "checkpoints" / ".step-00000007.part-0123456789abcdef"
    left_over.mkdir()
    last = files.saved_steps(corpus / "run")[-1]
    config = write_config(corpus, **with_training(max_steps=int(last.name[5:]) + 3, valid_every=20))
    assert train(config, corpus / "run").progress.step == config.training.max_steps
    assert not left_over.exists()


def test_an_output_that_is_a_file_is_rejected_before_text_is_read(corpus: Path) -> None:
    (corpus / "run").write_text("precious")
    with pytest.raises(SettingsError, match=r"--output .*run: Not a directory"):
        train(write_config(corpus, **with_training(max_steps=1, cooldown_steps=0)), corpus / "run")
    assert (corpus / "run").read_text() == "precious"


def test_the_best_checkpoint_stays_if_a_later_best_was_removed(corpus: Path) -> None:
    config = write_config(corpus, **with_training(max_steps=3, cooldown_steps=0, valid_every=1, keep_checkpoints=1))
    train(config, corpus / "run")
    kept, mark = files.saved_steps(corpus / "run")[-1], corpus / "run" / files.BEST
    mark.unlink()  # as remove_leftovers does if the folder of the best checkpoint is missing
    state = json.loads((kept / files.STATE).read_text())
    (kept / files.STATE).write_text(json.dumps({**state, "best_step": state["step"], "best_bleu": 101.0}))
    train(write_config(corpus, **with_training(max_steps=6, valid_every=1, keep_checkpoints=1)), corpus / "run")
    assert json.loads(mark.read_text())["checkpoint"] == kept.name
    load_checkpoint(kept)


def test_two_runs_do_not_share_a_folder(corpus: Path) -> None:
    config = write_config(corpus, **with_training(max_steps=1, cooldown_steps=0))
    with open_run(config, corpus / "run", Interrupt()) as first:
        before = sorted(path.name for path in (corpus / "run").iterdir())
        with pytest.raises(SettingsError, match=r"--output .*run: another run uses this folder"):
            train(config, corpus / "run")
        assert sorted(path.name for path in (corpus / "run").iterdir()) == before
        assert first.run().step == 1


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
