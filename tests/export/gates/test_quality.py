"""The gate that compares the quality of lossy precisions and of the shortlist with that of fp32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import lingon.export.gates.translations.quality
from lingon.errors import ParityError
from lingon.export.gates.translations.quality import check_likeness, check_quality
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, Texts
from lingon.training.checkpoint import Checkpoint
from lingon.training.data.corpus import Pair


def test_lossy_arithmetic_passes_only_with_scores_close_to_fp32() -> None:
    exact = ["eins zwei drei vier", "fünf sechs sieben acht"]
    found = check_quality("int8", exact, exact, exact)
    assert (found["bleu"], found["identical"], found["sentences"]) == (found["fp32_bleu"], 2, 2)
    with pytest.raises(ParityError, match=r"int8: BLEU \d+\.\d\d .* not within 0.2 and 0.3 of fp32's 100.00"):
        check_quality("int8", ["eins zwei drei", exact[1]], exact, exact)


def test_translations_unlike_those_of_fp32_are_refused_even_if_the_references_fit_neither() -> None:
    exact = [f"Satz {number} hat vier Wörter mehr." for number in range(20)]
    unrelated, broken = ["他在北京工作。"] * 20, ["qqq xxx yyy vvv"] * 20
    assert check_quality("int8", exact, exact, unrelated)["bleu_against_fp32"] == pytest.approx(100)
    message = r"^int8: against the translations of fp32, BLEU 0\.\d\d and chrF \d\.\d\d are not at least 85 and 93$"
    with pytest.raises(ParityError, match=message):
        check_quality("int8", broken, exact, unrelated)


def test_translations_without_blanks_are_like_those_of_fp32_if_their_characters_are() -> None:
    exact = ["今天天气很好，我们去公园吧。", "他在北京工作。", "请给我一杯水。"] * 10
    assert check_likeness("int8", ["请给我两杯水。", *exact[1:]], exact)["chrf_against_fp32"] > 93
    with pytest.raises(ParityError, match=r"^int8: against the translations of fp32, "):
        check_likeness("int8", ["我不知道。"] * 30, exact)
    assert check_quality("int8", exact, exact, exact, "zh")["bleu"] == pytest.approx(100)
    with pytest.raises(ParityError, match=r"^int8: BLEU 9\d\.\d\d and chrF .* not within 0.2 and 0.3 of fp32's 100.00"):
        check_quality("int8", ["请给我两杯水。", *exact[1:]], exact, exact, "zh")


def test_lossy_arithmetic_may_score_better_than_fp32() -> None:
    references = [f"Satz {number} hat vier Wörter mehr." for number in range(20)]
    worse = ["Satz 0 hat nun andere Wörter.", *references[1:]]
    found = check_quality("int8", references, worse, references)
    assert found["bleu"] > found["fp32_bleu"] + 0.2
    with pytest.raises(ParityError, match=r"not within 0.2 and 0.3 of fp32's 100.00 and 100.00"):
        check_quality("int8", worse, references, references)


def test_a_precision_that_fails_its_gate_is_named_with_the_option_that_leaves_it_out(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingon.export.gates.translations.quality, "LEAST_LIKE_CHRF", 101)
    texts, settings = Texts(pairs[:4], pairs), ExportSettings(precisions=("int8", "fp32-native"), shortlist=None)
    with pytest.raises(ParityError, match=r"^int8: .*; export without int8: --precision fp32,fp32-native$"):
        export_checkpoint(checkpoint, tmp_path / "digits", texts, settings)
    optional, lines = replace(settings, optional=("int8",)), list[str]()
    export_checkpoint(checkpoint, tmp_path / "digits", texts, optional, lines.append)
    assert [line for line in lines if line.endswith("; the bundle has no int8")]
    assert not [line for line in lines if "--precision" in line]


def test_a_shortlist_that_fails_its_gate_is_named_with_the_option_that_leaves_it_out(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingon.export.gates.translations.quality, "LEAST_LIKE_CHRF", 101)
    settings, texts = ExportSettings(precisions=("fp32",)), Texts(pairs[:4], pairs)
    with pytest.raises(ParityError, match=r"^fp32 with shortlist: .*; export without it: --no-shortlist$"):
        export_checkpoint(checkpoint, tmp_path / "digits", texts, settings)
    with pytest.raises(ParityError, match=r"^fp32 with shortlist: ") as raised:
        export_checkpoint(checkpoint, tmp_path / "digits", texts, replace(settings, optional=("shortlist",)))
    assert "--no-shortlist" not in str(raised.value)  # what calls it does without the shortlist by itself
