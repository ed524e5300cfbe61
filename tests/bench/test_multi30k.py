"""`lingon bench multi30k`: the whole command on sample sentences, how it resumes, and what its rows have."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from lingon.bench.cli import multi30k
from lingon.bench.multi30k import (
    PAIRS,
    PAPER,
    PARTS,
    PUBLISHED,
    SETS,
    SYSTEMS,
    averaged,
    measure,
    overrides,
    table,
    translated,
)
from lingon.bench.trained_runs import last_checkpoints, train, write_sample_corpus
from lingon.errors import CheckpointError, Interrupted, SettingsError
from lingon.training.checkpoint import load_checkpoint, saved_steps
from lingon.training.config import Config, load_config
from tests.support.repository import ROOT

CONFIGS = ROOT / "configs" / "multi30k"
TIMES = {"training_seconds", "training_tokens_per_second", "fastest_tokens_per_second"}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def measured(work: Path, *, train: bool = True) -> list[dict[str, Any]]:
    """The rows that a quick run writes, without the times."""
    multi30k(quick=True, work=work, configs=CONFIGS, results=work / "results", train=train, device="cpu")
    (path,) = (work / "results").glob("*-multi30k.json")
    rows = json.loads(path.read_text())["rows"]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def quick_config(work: Path, *more: str) -> Config:
    write_sample_corpus(work / "corpus", "multi30k.en-de", PARTS)
    return load_config(CONFIGS / "en-de.toml", ["training.device=cpu", *overrides("en-de", work / "corpus"), *more])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work of a quick run; its rows are in rows.json."""
    work = tmp_path_factory.mktemp("finished")
    (work / "rows.json").write_text(json.dumps(measured(work)))
    return work


def test_the_quick_command_scores_every_set_with_every_system(finished: Path) -> None:
    rows = json.loads((finished / "rows.json").read_text())
    names = [system.name(3) for system in SYSTEMS]  # The trial run has three checkpoints.
    assert [(row["pair"], row["system"], row["set"]) for row in rows] == [
        ("en-de", name, test_set) for name in names for test_set in SETS
    ]
    assert all(0 <= row[score] <= 100 for row in rows for score in ("bleu_tokenised", "bleu", "chrf"))
    assert {row["training_steps"] for row in rows} == {12}
    assert all("|moses:lc.norm.tok|lang:de|" in row["signatures"]["bleu_tokenised"] for row in rows)


def test_a_run_that_was_cut_off_goes_on_and_gets_the_rows_of_one_that_was_not(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(quick_config(tmp_path, "training.max_steps=4"), tmp_path / "en-de")
    assert measured(tmp_path) == json.loads((finished / "rows.json").read_text())
    assert "resumes after step 4" in capsys.readouterr().err


def test_a_second_measurement_trains_nothing_and_translates_nothing_again(finished: Path) -> None:
    def files() -> dict[Path, int]:
        made = [*(finished / "translations").iterdir(), *finished.glob("average-*"), *saved_steps(finished / "en-de")]
        return {path: path.stat().st_mtime_ns for path in made}

    before = files()
    assert measured(finished, train=False) == json.loads((finished / "rows.json").read_text())
    assert files() == before
    assert len(list((finished / "translations").iterdir())) == len(SYSTEMS) * len(SETS)


def test_a_signal_saves_the_run_and_the_checkpoint_that_it_saved_is_not_measured(tmp_path: Path) -> None:
    config, run = quick_config(tmp_path, "training.max_steps=100000"), tmp_path / "run"

    def interrupt_after_a_validation() -> None:
        while not (run / "best.json").exists():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt_after_a_validation)
    thread.start()
    with pytest.raises(Interrupted, match="run the same command again to resume"):
        train(config, run)
    thread.join()
    assert signal.getsignal(signal.SIGINT) == before
    *_, last = saved_steps(run)
    assert last not in last_checkpoints(run, 100)


def test_a_run_without_a_validated_checkpoint_cannot_be_measured(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has 0 checkpoints and none with a validation"):
        last_checkpoints(tmp_path, 10)


def test_the_measured_weights_are_the_mean_of_the_last_checkpoints(finished: Path) -> None:
    folders = last_checkpoints(finished / "en-de", 2)
    assert [folder.name for folder in folders] == ["step-00000008", "step-00000012"]
    mean, one, other = (load_checkpoint(path).model.state_dict() for path in (averaged(folders, finished), *folders))
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (one[name] + other[name]) / 2)


def test_other_weights_and_other_sources_are_translated_anew(finished: Path, tmp_path: Path) -> None:
    one, other = last_checkpoints(finished / "en-de", 2)
    for checkpoint, source in ((one, "A dog."), (other, "A dog."), (other, "A cat."), (other, "A cat.")):
        translated(checkpoint, [source], PAPER, tmp_path, "cpu")
    assert len(list((tmp_path / "translations").iterdir())) == 3


def test_the_published_figures_stand_beside_the_system_of_the_paper_alone(finished: Path) -> None:
    config, figures = quick_config(finished), PUBLISHED["en-de"]
    rows = measure(config, "en-de", finished / "en-de", finished, "cpu", figures, lambda line: None)
    expected = [figures[test_set] if system == PAPER else None for system in SYSTEMS for test_set in SETS]
    assert [row["published"] for row in rows] == expected
    column = next(each for each in table(rows).columns if each.header == "published")
    assert list(column.cells) == ["41.0", "33.4", "29.9", *[""] * (len(rows) - 3)]


def test_every_pair_has_a_config_that_differs_in_its_languages_alone() -> None:
    texts = {pair: (CONFIGS / f"{pair}.toml").read_text().split("[data]")[1] for pair in PAIRS}
    assert texts["en-fr"] == texts["en-de"].replace('"de"', '"fr"').replace("en-de", "en-fr").replace(".de.", ".fr.")
    assert {pair: set(figures) for pair, figures in PUBLISHED.items()} == {pair: set(SETS) for pair in PAIRS}


def test_another_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--pair must be one of en-de, en-fr, got 'en-cs'"):
        multi30k(pair=["en-cs"], work=tmp_path)
