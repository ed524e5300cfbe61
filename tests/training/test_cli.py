from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lingon.errors import CheckpointError, SettingsError
from lingon.text import Tokenizer
from lingon.training import checkpoint as files
from lingon.training.checkpoint import load_checkpoint
from lingon.training.cli import average, prepare
from lingon.training.cli import train as train_verb
from tests.support.repository import ROOT
from tests.support.training_runs import same, tiny_config_text, train, weights_of, write_config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> Path:
    """A run with three checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    for path in digits.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    few = {"max_steps": 6, "cooldown_steps": 0, "valid_every": 2, "valid_sentences": 3}
    train(write_config(folder, training=few), folder / "run")
    return folder / "run"


def test_importing_the_verbs_does_not_import_torch() -> None:
    program = (
        "import sys, lingon.training.cli\n"
        "print(sorted({'torch', 'numpy', 'pydantic', 'sentencepiece'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout == "[]\n"


def test_print_config_prints_the_resolved_settings_and_trains_nothing(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text(tiny_config_text())
    train_verb(tmp_path / "config.toml", tmp_path / "run", ["training.seed=7"], print_config=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed["training"]["seed"] == 7
    assert printed["model"]["dim"] == 32
    assert not (tmp_path / "run").exists()


def test_heads_that_no_bundle_can_have_are_refused_before_training(corpus: Path) -> None:
    write_config(corpus, model={"dim": 24, "heads": 4})
    needs = "an export needs model.dim / model.heads to be a multiple of 8, got 6"
    with pytest.raises(SettingsError, match=f"^{needs}$"):
        train_verb(corpus / "config.toml", corpus / "run")
    assert not (corpus / "run").exists()


@pytest.mark.parametrize("other", [{"score": "additive"}, {"decoder_cell": "ssru"}, {"head_dim": 8}])
def test_heads_that_a_bundle_can_have_are_not_refused(tmp_path: Path, other: dict[str, object]) -> None:
    write_config(tmp_path, model={"dim": 24, "heads": 4, **other}).model.check_export()


def test_a_corpus_is_prepared_where_the_run_or_the_option_or_the_settings_say(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(corpus)
    write_config(corpus, "of-run.toml")
    write_config(corpus, "named.toml", data={"prepared": "shared"})
    for name, output, folder in (
        ("of-run", None, "runs/of-run/corpus"),
        ("named", None, corpus / "shared"),
        ("named", Path("other"), "other"),
    ):
        prepare(config=Path(f"{name}.toml"), output=output)
        counts = "300 pairs read, 298 kept (dropped: 0 empty, 0 ratio, 0 duplicate, 0 length, 2 held out)"
        assert capsys.readouterr().out == f"{folder}: {counts}\n"
        assert Tokenizer.read(corpus / folder).source_vocab == 280


def test_runs_take_the_corpus_and_the_tokenizer_that_were_prepared_before(corpus: Path) -> None:
    write_config(corpus)
    prepare(config=corpus / "config.toml", output=corpus / "shared")
    few = {"max_steps": 1, "cooldown_steps": 0}
    shared = train(write_config(corpus, data={"prepared": "shared"}, training=few), corpus / "run")
    own = train(write_config(corpus, tokenizer={"path": "shared"}, training=few), corpus / "own")
    assert not (corpus / "run" / "corpus").exists()
    assert shared.tokenizer.files() == own.tokenizer.files() == Tokenizer.read(corpus / "shared").files()
    assert same(weights_of(shared), weights_of(own))


def test_a_corpus_gets_the_tokenizer_of_a_checkpoint(run: Path, corpus: Path) -> None:
    write_config(corpus, tokenizer={"vocab_size": 300})
    prepare(config=corpus / "config.toml", output=corpus / "shared", init_from=run)
    assert Tokenizer.read(corpus / "shared").files() == Tokenizer.read(run).files()


def test_an_average_of_a_run_takes_its_last_checkpoints(run: Path, tmp_path: Path) -> None:
    average([run], tmp_path / "mean", last=2)
    states = [load_checkpoint(files.step_folder(run, step)).model.state_dict() for step in (4, 6)]
    found = load_checkpoint(tmp_path / "mean")
    assert found.progress.step == 6
    for name, weight in found.model.state_dict().items():
        assert torch.equal(weight, ((states[0][name].double() + states[1][name].double()) / 2).float())


def test_an_average_of_more_checkpoints_than_a_run_has_says_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = len(files.saved_steps(run))
    average([run], tmp_path / "mean", last=99)
    assert f"{run}: has {saved} checkpoints, not the last 99; all of them are averaged\n" in capsys.readouterr().out
    average([run], tmp_path / "all", last=saved)
    assert "all of them" not in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["train", "prepare"])
def test_a_missing_corpus_is_an_error_before_torch_is_imported(verb: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(tiny_config_text())
    program = (
        "import sys; from importlib.metadata import EntryPoint; from lingon.cli.main import main\n"
        f"verb = EntryPoint('{verb}', 'lingon.training.cli:{verb}', 'lingon.verbs')\n"
        f"code = main(['{verb}', sys.argv[1], '--output', sys.argv[2]], entries=[verb])\n"
        "print(code, sorted({'torch', 'numpy', 'sentencepiece'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "config.toml"), str(tmp_path / "new")]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "1 []\n"
    assert re.fullmatch(rf"lingon: error: {tmp_path}/\S+: No such file or directory\n", done.stderr)
    assert not (tmp_path / "new").exists()


def test_an_average_of_a_whole_run_or_of_named_checkpoints_is_the_same(run: Path, tmp_path: Path) -> None:
    average([run], tmp_path / "all")
    average(files.saved_steps(run), tmp_path / "named")
    assert (tmp_path / "all" / files.MODEL).read_bytes() == (tmp_path / "named" / files.MODEL).read_bytes()


def test_half_rounds_every_weight_to_fp16(run: Path, tmp_path: Path) -> None:
    average([run], tmp_path / "half", half=True)
    for weight in load_checkpoint(tmp_path / "half").model.parameters():
        assert torch.equal(weight, weight.half().float())


def test_an_average_needs_checkpoints_and_a_new_folder(run: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="exists already"):
        average([run], run)
    with pytest.raises(CheckpointError, match="neither a checkpoint"):
        average([tmp_path], tmp_path / "mean")


def test_an_averaged_checkpoint_can_be_fine_tuned(run: Path, corpus: Path) -> None:
    average([run], corpus / "mean")
    config = write_config(corpus, training={"max_steps": 1, "cooldown_steps": 0})
    assert train(config, corpus / "tuned", start=corpus / "mean").progress.step == 1
