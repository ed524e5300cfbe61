"""The manifest and the model card of an export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lingon.bundle.manifest import Alignment, Manifest
from lingon.errors import BundleError, SettingsError
from lingon.export.manifest import build_manifest
from lingon.export.model_card import model_card
from lingon.export.settings import ExportSettings
from lingon.terms.annotation import AnnotationForm
from lingon.training.checkpoint import Checkpoint
from lingon.training.config import OriginSettings, TermSettings
from lingon.training.model_settings import TransformerSettings
from tests.support.bundles import MANIFEST


def alignment(checkpoint: Checkpoint, folder: Path, training: dict[str, Any], **settings: Any) -> Alignment:
    """Return the alignment in the manifest of a checkpoint with these settings of its training."""
    config = checkpoint.config
    changed = config.model_copy(update={"training": config.training.model_copy(update=training)})
    return build_manifest(replace(checkpoint, config=changed), folder / "digits", ExportSettings(**settings)).alignment


@pytest.mark.parametrize(("layers", "layer"), [(1, 0), (2, 1), (3, 1), (6, 4)])
def test_without_guidance_the_heads_of_the_last_layer_but_one_give_alignments_or_of_the_second(
    checkpoint: Checkpoint, tmp_path: Path, layers: int, layer: int
) -> None:
    assert isinstance(checkpoint.config.model, TransformerSettings)
    model = checkpoint.config.model.model_copy(update={"decoder_layers": layers})
    deeper = replace(checkpoint, config=checkpoint.config.model_copy(update={"model": model}))
    found = alignment(deeper, tmp_path, {"guided_layer": 0, "guided_heads": (1,)})
    assert found == Alignment(layer, (0, 1))


def test_the_guided_heads_give_alignments(checkpoint: Checkpoint, tmp_path: Path) -> None:
    assert alignment(checkpoint, tmp_path, {"guided_alignment": 0.1}) == Alignment(0, (0,))
    guided = {"guided_alignment": 0.1, "guided_layer": 1, "guided_heads": (1,)}
    assert alignment(checkpoint, tmp_path, guided) == Alignment(1, (1,))


def test_the_options_of_the_export_come_before_the_guided_heads(checkpoint: Checkpoint, tmp_path: Path) -> None:
    guided = {"guided_alignment": 0.1, "guided_layer": 1, "guided_heads": (1,)}
    assert alignment(checkpoint, tmp_path, guided, alignment_layer=0) == Alignment(0, (0, 1))
    assert alignment(checkpoint, tmp_path, guided, alignment_layer=1) == Alignment(1, (1,))
    assert alignment(checkpoint, tmp_path, guided, alignment_heads=(0,)) == Alignment(1, (0,))


def test_a_head_that_the_model_does_not_have_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--alignment-head must be 0 to 1, got 2$"):
        alignment(checkpoint, tmp_path, {}, alignment_heads=(0, 2))


def test_the_version_is_higher_than_one_that_is_being_copied(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "digits" / "7").mkdir(parents=True)
    assert build_manifest(checkpoint, tmp_path / "digits", ExportSettings()).version == 8


ORIGIN = OriginSettings(form="Marian", licence="CC-BY-4.0", files={"model.npz": "0" * 64})


def test_the_card_of_an_imported_model_that_was_trained_further_has_its_origin_and_its_training(
    checkpoint: Checkpoint,
) -> None:
    config = checkpoint.config.model_copy(update={"origin": ORIGIN})
    card = model_card(replace(checkpoint, config=config), MANIFEST)
    for line in ("## Origin", "- imported: Marian", "- licence: CC-BY-4.0", "## Training"):
        assert f"\n{line}\n" in card
    assert "- training text: train.source, train.target; validation text: valid.source, valid.target\n" in card
    assert "## Origin" not in model_card(checkpoint, MANIFEST)


def test_the_manifest_has_the_form_of_annotated_sources_if_the_training_annotated_any(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    assert build_manifest(checkpoint, tmp_path / "digits", ExportSettings()).terms is None
    data = checkpoint.config.data.model_copy(update={"terms": TermSettings(begin="<a>", middle="<b>", end="<c>")})
    trained = replace(checkpoint, config=checkpoint.config.model_copy(update={"data": data}))
    manifest = build_manifest(trained, tmp_path / "digits", ExportSettings())
    assert manifest.terms == AnnotationForm("<a>", "<b>", "<c>")
    assert Manifest.from_bytes(manifest.to_bytes(), tmp_path) == manifest
    assert b"terms" not in replace(manifest, terms=None).to_bytes()
    with pytest.raises(BundleError, match=r"terms\.begin must have 1 to 64 characters, got 0$"):
        Manifest.from_bytes(replace(manifest, terms=AnnotationForm("", "<b>", "<c>")).to_bytes(), tmp_path)
