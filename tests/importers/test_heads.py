"""Heads of any width are made wider with zeros, and the model computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lingon.importers.assembly import checkpoint_of, with_wide_heads
from lingon.importers.pipeline import READERS
from lingon.text import BOS, normalise
from tests.support.foreign_models import lines, save_opus_mt, save_t5

TEXTS = [normalise(text) for text in lines("en")[:8]]


@pytest.mark.parametrize(("width", "wide"), [(4, 8), (12, 16), (2, 8), (8, 8)])
def test_a_model_with_wider_heads_gives_the_logits_of_the_model(tmp_path: Path, width: int, wide: int) -> None:
    heads = 48 // width
    sizes = {f"{side}_attention_heads": heads for side in ("encoder", "decoder")}
    check(save_opus_mt(tmp_path / "files", seed=3, d_model=48, **sizes), "marian", wide)


def test_t5_scores_that_are_not_divided_by_the_width_stay_so(tmp_path: Path) -> None:
    check(save_t5(tmp_path / "files", "t5", d_kv=12), "t5", 16)


def check(folder: Path, kind: str, wide: int) -> None:
    narrow = checkpoint_of(READERS[kind](folder, None), ("en", "de"), folder)
    widened = with_wide_heads(READERS[kind](folder, None))
    assert widened.settings.head_dim == wide
    widened.settings.check_export()
    assert any("widened" in note for note in widened.notes) == (wide != narrow.model.settings.head_dim)
    other = checkpoint_of(widened, ("en", "de"), folder)
    with torch.inference_mode():
        for text in TEXTS:
            ids = torch.tensor([narrow.tokenizer.encode_source(text)])
            target = torch.tensor([[BOS, *narrow.tokenizer.encode_target(text)]])
            given = ids, torch.tensor([ids.size(1)]), target
            torch.testing.assert_close(other.model(*given), narrow.model(*given), atol=1e-5, rtol=1e-5)
