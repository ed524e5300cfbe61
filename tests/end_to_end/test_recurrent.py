"""Recurrent systems from the checkpoint to the bundle, and the RNNsearch of tests/data, which has learned its task."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lingon.bundle.manifest import Alignment
from lingon.bundle.names import CARD
from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.export.gates_text import golden_sentences
from lingon.export.manifest import build_manifest
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.serving.in_process import LocalTranslator, translate_lines
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.serving.translation.options import WHOLE
from lingon.training.checkpoint import Checkpoint, TrainingProgress
from lingon.training.config import load_config
from lingon.training.corpus import Pair
from lingon.training.models.build import build_model
from lingon.training.tokenizer import train_tokenizer
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.random_models import SIZES, accept_any_quality
from tests.support.repository import ROOT
from tests.support.training_runs import tiny_config_text, write_digit_corpus

DIGITS = ROOT / "tests" / "data" / "digits"
KINDS = [kind for kind in SIZES if kind != "transformer"]


def lines(count: int = 60) -> list[str]:
    draw = random.Random(5)
    return [" ".join(str(draw.randrange(10)) for _ in range(draw.randint(2, 8))) for _ in range(count)]


@pytest.fixture(scope="module")
def digits() -> Bundle:
    return open_bundle(DIGITS)


def test_the_shipped_rnnsearch_is_intact_and_small_and_passed_its_gates(digits: Bundle) -> None:
    digits.verify()
    assert sum(path.stat().st_size for path in digits.folder.rglob("*") if path.is_file()) <= 200_000
    assert digits.manifest.architecture == "rnnsearch"
    assert [each.gate for each in digits.manifest.precisions.values()] == ["passed", "passed"]
    assert {state.kind for state in digits.manifest.states} == {"memory", "recurrent"}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_shipped_rnnsearch_reverses_digits_and_reproduces_its_golden_sentences(
    digits: Bundle, precision: str
) -> None:
    load_translator(digits, LoadOptions(precision=precision, golden=True, threads=1)).engine.stop(0)
    found = translate_lines(DIGITS, lines(), beam_size=4, length_penalty=1.0, device="cpu").lines
    right = [mine == line[::-1] for mine, line in zip(found, lines(), strict=True)]
    assert sum(right) >= 58


def test_the_shipped_rnnsearch_attends_to_the_digit_that_it_writes(digits: Bundle) -> None:
    line = "3 1 4 5 9"
    request = pb.TranslateRequest(texts=[line], options=pb.DecodingOptions(return_alignment=True), text=WHOLE)
    with LocalTranslator(DIGITS, threads=1) as local:
        (result,) = local.translate(request).results
        (scored,) = local.score(
            pb.ScoreRequest(pairs=[pb.ScorePair(source=line, target=line[::-1])], return_alignment=True)
        ).results
    (best,) = result.hypotheses
    for links in (best.alignment, scored.alignment):
        copied = [
            line[link.source.begin : link.source.end] == line[::-1][link.target.begin : link.target.end]
            for link in links
        ]
        assert sum(copied) >= 4, links


def test_golden_sentences_have_alignments_only_if_the_model_has(digits: Bundle) -> None:
    without = Bundle(digits.folder, replace(digits.manifest, alignment=Alignment(0, ())))
    found = []
    for bundle in (digits, without):
        golden = golden_sentences(bundle, {"fp32": load_runner(bundle, "fp32", threads=1)}, lines(10))
        assert golden is not None
        found.append((len(golden.sentences) > 0, golden.translations, set(golden.alignments)))
    assert found == [(True, found[0][1], {"fp32"}), (True, found[0][1], set())]


def checkpoint_of(kind: str, folder: Path) -> tuple[Checkpoint, list[Pair]]:
    """A checkpoint of a kind with random weights, and pairs of digits."""
    write_digit_corpus(folder, pairs=200)
    settings = {**SIZES[kind], "kind": kind, "max_positions": 16, "dropout": 0.0}
    (folder / "config.toml").write_text(tiny_config_text(model=settings, data={"max_tokens": 15}))
    config = load_config(folder / "config.toml")
    texts = ((folder / f"train.{side}").read_text().splitlines() for side in ("source", "target"))
    pairs = [Pair(*both) for both in zip(*texts, strict=True)]
    tokenizer = train_tokenizer(pairs, config.tokenizer)
    torch.manual_seed(0)
    model = build_model(config.model, tokenizer.source_vocab, tokenizer.target_vocab).eval()
    return Checkpoint(config, tokenizer, model, TrainingProgress(step=7), folder), pairs


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_of_each_kind_is_a_verified_bundle_with_a_shortlist(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    checkpoint, pairs = checkpoint_of(kind, tmp_path)
    precisions = "fp32", "int8", "int8-native", "fp32-native"
    settings = ExportSettings(precisions=precisions, parity_sentences=4, calibration_sentences=20)
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:4], pairs), settings)
    manifest = bundle.manifest
    assert {name: each.gate for name, each in manifest.precisions.items()} == dict.fromkeys(precisions, "passed")
    assert manifest.architecture == kind
    assert manifest.alignment.heads == (() if kind == "rnnenc" else (0,))
    assert ("attention" in manifest.precisions["fp32"].report) == (kind != "rnnenc")
    assert manifest.shortlist is not None
    assert set(manifest.shortlist) == {"coverage", *precisions}
    names = {"rnnenc": "An RNNenc (no attention)", "rnnsearch": "An RNNsearch", "luong": "A system of Luong"}
    assert f"\n{names[kind]}" in bundle.read(CARD).decode()
    load_translator(bundle, LoadOptions(threads=1)).engine.stop(0)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("rnnenc", {"alignment_layer": 0}, "--alignment-layer: model.kind = 'rnnenc' has no attention, got 0"),
        ("luong", {"alignment_layer": 1}, "--alignment-layer must be 0 to 0, got 1"),
        (
            "luong",
            {},
            "--precision for model.kind = 'luong' must be some of fp32, int8, int8-native, fp32-native, "
            "got fp32,fp32-cuda,fp16,int8,int8-native,fp32-native",
        ),
    ],
)
def test_what_a_kind_has_not_is_refused(kind: str, settings: dict[str, int], message: str, tmp_path: Path) -> None:
    checkpoint, _ = checkpoint_of(kind, tmp_path)
    precisions = {"precisions": ("fp32",)} if settings else {}
    with pytest.raises(SettingsError, match=f"^{message}$"):
        build_manifest(checkpoint, tmp_path / "digits", ExportSettings(**precisions, **settings))
