"""MODEL_CARD.md says where a model comes from."""

from __future__ import annotations

from dataclasses import replace

from lingon.export.model_card import model_card
from lingon.training.checkpoint import Checkpoint
from lingon.training.config import OriginSettings
from tests.support.bundles import MANIFEST

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
