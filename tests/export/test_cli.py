"""The verb `export`: the texts that it takes from the checkpoint, and the error if none of them is usable."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lingon.bundle.manifest import PASSED, Precision
from lingon.bundle.store import open_bundle
from lingon.errors import CheckpointError, DeviceError, SettingsError
from lingon.export.cli import _training_pairs, print_report
from lingon.export.cli import export as verb
from lingon.export.graphs.precisions import DEFAULT_PRECISIONS, precisions_of
from lingon.serving.runtime.device import CPU
from lingon.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from lingon.training.corpus import Pair
from lingon.training.model_settings import ModelSettings, TransformerSettings
from lingon.training.models.build import build_model
from tests.support.bundles import write_small_bundle
from tests.support.echo_engine import bundle
from tests.support.random_models import accept_any_quality

LONG = "1 " * 30


def variant(**settings: Any) -> ModelSettings:
    return TransformerSettings.model_validate({"preset": "tiny", **settings})


@pytest.fixture
def saved(checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoint on disk; its training text ends with a pair that is longer than data.max_tokens."""
    accept_any_quality(monkeypatch)
    for side in ("source", "target"):
        with (tmp_path / "text" / f"train.{side}").open("a") as file:
            file.write(f"{LONG}\n")
    given = replace(checkpoint, folder=tmp_path / "saved")
    save_checkpoint(given.folder, given.config, given.tokenizer, given.model, given.progress)
    return given.folder


def test_ranges_and_shortlist_come_from_the_training_text(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verb(
        checkpoint=saved,
        folder=tmp_path / "digits",
        precision="int8",
        parity_sentences=7,
        gate_sentences=2,
        beam_size=2,
        max_beam_size=22,
    )
    assert "shortlist: 199 of 199 sentence pairs" in capsys.readouterr().err
    manifest = open_bundle(tmp_path / "digits").manifest
    assert (manifest.defaults.beam_size, manifest.limits.max_beam_size) == (2, 22)
    assert manifest.precisions["fp32"].report["sentences"] == 7
    assert manifest.precisions["int8"].report["quality"]["sentences"] == 2


def test_pairs_of_files_are_read_without_the_text_of_the_run(saved: Path, tmp_path: Path) -> None:
    """The checkpoint may come from another machine. Nothing is held out of pairs that the caller chooses."""
    shutil.rmtree(tmp_path / "text")
    files = tmp_path / "source", tmp_path / "target"
    for path in files:
        path.write_text(f"1 2\n{LONG}\n", encoding="utf-8")
    assert _training_pairs(load_checkpoint(saved), files) == [Pair("1 2", "1 2")]


@pytest.mark.parametrize(
    "settings",
    [
        {"positions": "rotary", "encoder_window": 3},
        {"positions": "none", "score": "additive"},
        {"positions": "learned", "encoder_attention": "linear"},
    ],
    ids=str,
)
def test_a_variant_of_the_transformer_is_exported(
    checkpoint: Checkpoint, tmp_path: Path, settings: dict[str, Any]
) -> None:
    tokenizer, model = checkpoint.tokenizer, variant(**settings)
    config = checkpoint.config.model_copy(update={"model": model})
    made = build_model(model, tokenizer.source_vocab, tokenizer.target_vocab)
    save_checkpoint(tmp_path / "variant", config, tokenizer, made, checkpoint.progress)
    small = {"parity_sentences": 3, "gate_sentences": 2, "beam_size": 2, "shortlist": False}
    verb(checkpoint=tmp_path / "variant", folder=tmp_path / "digits", precision="fp32", **small)
    assert open_bundle(tmp_path / "digits").manifest.precisions["fp32"].report["sentences"] == 3
    assert precisions_of(made) == DEFAULT_PRECISIONS


def test_graphs_in_operators_for_cuda_are_exported_with_those_of_fp16_where_they_are_named(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    tokenizer, model = checkpoint.tokenizer, variant(dim=32, heads=1)
    config = checkpoint.config.model_copy(update={"model": model})
    made = build_model(model, tokenizer.source_vocab, tokenizer.target_vocab)
    save_checkpoint(tmp_path / "variant", config, tokenizer, made, checkpoint.progress)
    small = {"parity_sentences": 2, "gate_sentences": 2, "beam_size": 2, "shortlist": False}
    verb(checkpoint=tmp_path / "variant", folder=tmp_path / "digits", precision="fp16-native", **small)
    assert list(open_bundle(tmp_path / "digits").manifest.precisions) == ["fp32", "fp16", "fp16-native"]


def test_heads_that_no_step_computes_are_refused_before_any_text_is_read(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    tokenizer, model = checkpoint.tokenizer, variant(dim=24, heads=4)
    config = checkpoint.config.model_copy(update={"model": model})
    made = build_model(model, tokenizer.source_vocab, tokenizer.target_vocab)
    save_checkpoint(tmp_path / "narrow", config, tokenizer, made, checkpoint.progress)
    shutil.rmtree(tmp_path / "text")
    needs = "an export needs model.dim / model.heads to be a multiple of 8, got 6"
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/narrow: {needs}$"):
        verb(checkpoint=tmp_path / "narrow", folder=tmp_path / "digits")


def test_gate_data_without_a_short_enough_sentence_is_an_error(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "long").write_text(f"{LONG}\n")
    given = (tmp_path / "long", tmp_path / "long")
    message = "no sentence for the gates: of 1 pairs none has at most data.max_tokens = 20 source tokens"
    with pytest.raises(SettingsError, match=f"^{tmp_path}/long: {message}$"):
        verb(checkpoint=saved, folder=tmp_path / "digits", gate_data=given)


def test_gates_on_cuda_are_refused_without_it_before_the_checkpoint_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [CPU])
    with pytest.raises(DeviceError, match=r"^--gate-on cuda: this onnxruntime is the CPU build"):
        verb(checkpoint=tmp_path / "no checkpoint", folder=tmp_path / "digits", gate_on="cuda")


def test_the_folder_of_a_version_is_refused_before_any_text_is_read(saved: Path, tmp_path: Path) -> None:
    version = write_small_bundle(tmp_path / "digits" / "1").folder
    with pytest.raises(SettingsError, match=f"^{version}: {version} is for a version of a model"):
        verb(checkpoint=saved, folder=version, train_data=(saved / "config.json", saved / "config.json"))


def test_a_folder_of_models_is_no_folder_for_versions(saved: Path, tmp_path: Path) -> None:
    """A server that is given the folder would serve the version alone, and none of the models."""
    models = tmp_path / "models"
    write_small_bundle(models / "digits" / "1")
    with pytest.raises(SettingsError, match=rf"^{models}: .*digits.* {models}/NAME$"):
        verb(checkpoint=saved, folder=models)
    assert [path.name for path in models.iterdir()] == ["digits"]


@pytest.mark.parametrize(("bleu", "warned"), [(0.134, True), (4.99, True), (35.0, False)])
def test_a_model_that_hardly_translates_is_exported_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bleu: float, warned: bool
) -> None:
    report = {"quality": {"sentences": 9, "bleu": bleu, "fp32_bleu": bleu}}
    written = bundle(tmp_path, precisions={"int8": Precision("CPUExecutionProvider", PASSED, (), report)})
    print_report(written)
    printed, told = capsys.readouterr()
    assert printed.splitlines() == [
        "en-de/1: parity",
        "int8 on CPU: gate passed",
        f"  quality: sentences 9, bleu {bleu:.3g}, fp32 bleu {bleu:.3g}",
        f"written: {written.folder}",
    ]
    assert told.startswith(f"lingon: warning: BLEU is {bleu:.2f}, below 5: ") if warned else told == ""
