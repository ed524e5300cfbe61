"""Exporting: what is proven, what is refused, what is left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import export.parity
from export.parity import check_tokens, engine_search
from export.pipeline import NOT_ON_CUDA, ExportSettings, export_checkpoint
from export.quality import check_quality
from lingon.bundle import CARD, open_bundle
from lingon.errors import ParityError, SettingsError
from serving.onnx_runner import load_runner
from tests.models import random_model, random_runner
from training.checkpoint import Checkpoint
from training.corpus import Pair


def test_an_export_is_a_verified_bundle_that_says_what_was_proven(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path
) -> None:
    lines: list[str] = []
    written = export_checkpoint(checkpoint, tmp_path / "digits", pairs[:30], ExportSettings(), lines.append)
    opened = open_bundle(tmp_path / "digits")
    opened.verify()
    assert opened.folder == written.folder == tmp_path / "digits" / "1"
    manifest = opened.manifest
    assert {name: entry.gate for name, entry in manifest.precisions.items()} == {"fp32": "passed", "fp16": NOT_ON_CUDA}
    report = manifest.precisions["fp32"].report
    assert report["sentences"] == 30
    assert report["greedy"]["identical"] + len(report["greedy"]["excused"]) == 30
    assert report["beam 4"]["identical"] + len(report["beam 4"]["excused"]) == 30
    assert report["tensors"]["step_difference"] < 1e-4
    assert "7 updates" in opened.read(CARD).decode()
    assert any("30 of 30" in line for line in lines)


def test_the_next_export_is_the_next_version(checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path) -> None:
    settings = ExportSettings(precisions=("fp32",))
    for version in (1, 2):
        bundle = export_checkpoint(checkpoint, tmp_path / "digits", pairs[:2], settings)
        assert bundle.manifest.version == version
    assert sorted(path.name for path in (tmp_path / "digits").iterdir()) == ["1", "2"]


def test_a_failed_gate_leaves_nothing(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(export.parity.TOLERANCE, "float32", 1e-12)
    with pytest.raises(ParityError):
        export_checkpoint(checkpoint, tmp_path / "digits", pairs[:2], ExportSettings())
    assert not (tmp_path / "digits").exists()


def test_tokens_that_differ_name_the_first_sentence(checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path) -> None:
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", pairs[:2], ExportSettings(precisions=("fp32",)))
    runner = load_runner(bundle, "fp32", threads=1)
    with torch.no_grad():
        checkpoint.model.target_embedding.pieces.weight += 0.05 * torch.randn_like(checkpoint.model.output.weight)
    texts = [pair.source for pair in pairs[:20]]
    for beam_size in (1, 4):
        with pytest.raises(ParityError, match=rf"beam size {beam_size}: '\d.*' becomes .* in the engine and .* in the"):
            check_tokens(checkpoint.model, runner, checkpoint.tokenizer, texts, beam_size, 1.0)


def test_a_lossy_precision_passes_only_near_the_checkpoints_scores(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path
) -> None:
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", pairs[:2], ExportSettings(precisions=("fp32",)))
    runner = load_runner(bundle, "fp32", threads=1)
    found = check_quality(checkpoint, runner, pairs[:10], 1.0)
    assert found["bleu"] == found["fp32_bleu"]
    own = [tuple(checkpoint.tokenizer.encode_source(pair.source)) for pair in pairs[:10]]
    spoken = [checkpoint.tokenizer.decode(best.tokens) for best, *_ in engine_search(runner, own, 4, 1.0)]
    echoed = [pair._replace(target=text) for pair, text in zip(pairs, spoken, strict=False)]
    with torch.no_grad():
        checkpoint.model.target_embedding.pieces.weight += 0.1 * torch.randn_like(checkpoint.model.output.weight)
    with pytest.raises(ParityError, match=r"BLEU 100.00 .* within 0.2 and 0.3 of fp32's"):
        check_quality(checkpoint, runner, echoed, 1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"precisions": ("fp16",)}, "--precision must name fp32"),
        ({"precisions": ("fp32", "fp8")}, "--precision must name fp32, and of fp32, fp16 only"),
        ({"beam_size": 9}, "--beam-size must be 1 to 8, got 9"),
    ],
)
def test_settings_out_of_bounds_are_refused_by_name(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ExportSettings(**values)  # type: ignore[arg-type]


def test_the_alignment_layer_must_exist(checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--alignment-layer must be 0 to 1, got 2"):
        export_checkpoint(checkpoint, tmp_path / "digits", pairs[:2], ExportSettings(alignment_layer=2))


def test_a_toss_up_is_excused_and_listed_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model, runner = random_model(norm="pre"), random_runner(norm="pre")
    source = (5, 6, 7, 2)
    (mine,), (theirs,) = (
        export.parity.engine_search(runner, [source], 1, 0.0)[0],
        export.parity.translate(model, [source], export.parity.reference_settings(runner.limits, 1, 0.0))[0],
    )
    other = replace(theirs, tokens=(theirs.tokens[0] + 1, *theirs.tokens[1:]))
    assert not export.parity._is_toss_up(model, runner, source, (mine, other), 1, 0.0)
    monkeypatch.setattr(export.parity, "NEAR_TIE", 1e9)
    assert export.parity._is_toss_up(model, runner, source, (mine, other), 1, 0.0)
