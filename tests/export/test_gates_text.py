"""The gates of translations: tokens, quality, and that each translation is searched for once."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

import lingon.export.gates_text
from lingon.bundle.store import Bundle
from lingon.errors import ParityError
from lingon.export.gated_bundle import Runners
from lingon.export.gates_text import (
    ExactSearch,
    Searches,
    check_agreement,
    check_likeness,
    check_quality,
    engine_search,
)
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.training.checkpoint import Checkpoint
from lingon.training.corpus import Pair
from tests.support.random_models import (
    random_model,
    random_runner,
    random_sources,
    tokenizer_model,
    written_bundle,
)


def test_fp32_for_cuda_that_finds_other_tokens_than_fp32_is_refused() -> None:
    runner, sources = random_runner(), [(5, 6, 7, 2), (8, 9, 2)]
    found = [best for best, *_ in engine_search(runner, sources, 1, 0.0)]
    expected = ExactSearch(runner, sources, found, 1, 0.0)
    assert check_agreement("fp32-cuda", found, expected, exact=True).identical == 2
    other = replace(found[1], tokens=(found[1].tokens[0] + 1, *found[1].tokens[1:]))
    with pytest.raises(ParityError, match=r"^fp32-cuda: beam size 1: sentence 2 of 2 .* fp32$"):
        check_agreement("fp32-cuda", [found[0], other], expected, exact=True)
    moved = replace(found[0], log_probs=tuple(each - 2e-3 for each in found[0].log_probs))
    with pytest.raises(ParityError, match=r"beam size 1: .* 2\.00e-03"):
        check_agreement("fp32-cuda", [moved, found[1]], expected, exact=True)
    broken = replace(found[0], log_probs=(math.nan, *found[0].log_probs[1:]))
    with pytest.raises(ParityError, match="not all finite"):
        check_agreement("fp32-cuda", [broken, found[1]], expected, exact=True)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_only_a_near_tie_excuses_other_tokens_than_those_of_fp32(
    beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, sources = random_runner(), random_sources(3)
    found = [best for best, *_ in engine_search(runner, sources, beam_size, 1.0)]
    expected = ExactSearch(runner, sources, found, beam_size, 1.0)
    others = [replace(each, tokens=(each.tokens[0] + 1, *each.tokens[1:])) for each in found]
    assert not expected.is_near_tie(0, others[0])
    monkeypatch.setattr(lingon.export.gates_text, "NEAR_TIE", 1e9)
    report = check_agreement("fp32-cuda", [others[0], *found[1:]], expected, exact=True)
    assert (report.identical, report.near_ties) == (2, (1,))
    with pytest.raises(ParityError, match=rf"beam size {beam_size}: 3 of 3 .* at most 1 "):
        check_agreement("fp32-cuda", others, expected, exact=True)


def test_lossy_arithmetic_may_change_a_quarter_of_the_translations() -> None:
    runner, sources = random_runner(), random_sources(8)
    found = [best for best, *_ in engine_search(runner, sources, 1, 0.0)]
    expected = ExactSearch(runner, sources, found, 1, 0.0)
    others = [replace(each, tokens=(each.tokens[0] + 1, *each.tokens[1:])) for each in found]
    report = check_agreement("int8", [*others[:2], *found[2:]], expected, exact=False)
    assert (report.identical, report.near_ties) == (6, ())
    with pytest.raises(ParityError, match=r"int8: beam size 1: 5 of 8 .* at least 75%"):
        check_agreement("int8", [*others[:3], *found[3:]], expected, exact=False)


def test_lossy_arithmetic_passes_only_with_scores_close_to_fp32() -> None:
    exact = ["eins zwei drei vier", "fünf sechs sieben acht"]
    found = check_quality("int8", exact, exact, exact)
    assert (found["bleu"], found["identical"], found["sentences"]) == (found["fp32_bleu"], 2, 2)
    with pytest.raises(ParityError, match=r"int8: BLEU \d+\.\d\d .* 0.2 and 0.3 .* 100.00"):
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
    with pytest.raises(ParityError, match=r"^int8: BLEU 9\d\.\d\d and chrF .* 0.2 and 0.3 .* 100.00"):
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
    monkeypatch.setattr(lingon.export.gates_text, "LEAST_LIKE_CHRF", 101)
    texts, settings = ExportTexts(pairs[:4], pairs), ExportSettings(precisions=("int8", "fp32-native"), shortlist=None)
    with pytest.raises(ParityError, match=r"^int8: .*; export without int8: --precision fp32,fp32-native$"):
        export_checkpoint(checkpoint, tmp_path / "digits", texts, settings)
    optional, lines = replace(settings, optional=("int8",)), list[str]()
    export_checkpoint(checkpoint, tmp_path / "digits", texts, optional, lines.append)
    assert [line for line in lines if line.endswith("; the bundle has no int8")]
    assert not [line for line in lines if "--precision" in line]


def test_a_shortlist_that_fails_its_gate_is_named_with_the_option_that_leaves_it_out(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingon.export.gates_text, "LEAST_LIKE_CHRF", 101)
    settings, texts = ExportSettings(precisions=("fp32",)), ExportTexts(pairs[:4], pairs)
    with pytest.raises(ParityError, match=r"^fp32 with shortlist: .*; export without it: --no-shortlist$"):
        export_checkpoint(checkpoint, tmp_path / "digits", texts, settings)
    with pytest.raises(ParityError, match=r"^fp32 with shortlist: ") as raised:
        export_checkpoint(checkpoint, tmp_path / "digits", texts, replace(settings, optional=("shortlist",)))
    assert "--no-shortlist" not in str(raised.value)  # what calls it does without the shortlist by itself


@pytest.mark.parametrize("search", [(1, 0.0), (4, 1.0), (4, 0.0)])
def test_translations_that_are_shared_are_those_of_a_search_of_their_own(search: tuple[int, float]) -> None:
    runner, sources = random_runner(), random_sources(12)
    shared = Searches({"fp32": runner}, "fp32", sources)
    several = shared.hypotheses(search, 5, search[0])
    best, fewer = shared.best(search, 12), shared.best(search, 3)
    assert several == engine_search(runner, sources[:5], *search, num_hypotheses=search[0])
    assert best == [first for first, *_ in engine_search(runner, sources, *search)]
    assert fewer == best[:3]


def test_greedy_search_is_made_once_for_all_length_penalties() -> None:
    """The gates of tokens and scores have none, the default of a bundle may have one."""
    runner, sources = random_runner(), random_sources(6)
    shared = Searches({"fp32": runner}, "fp32", sources)
    first, again = shared.best((1, 0.0), 6), shared.best((1, 1.0), 6)
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert [each.tokens for each in again] == [best.tokens for best, *_ in engine_search(runner, sources, 1, 1.0)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    files = {"tokenizer.model": tokenizer_model()}
    return written_bundle(random_model(), tmp_path_factory.mktemp("both"), ["fp32", "int8"], files=files)


def test_graphs_are_kept_until_those_of_another_precision_are_read(bundle: Bundle) -> None:
    runners = Runners(bundle, ["fp32", "int8"])
    kept = weakref.ref(runners["fp32"].scorer)
    assert runners["fp32"].scorer is kept()
    assert runners.only(["fp32"])["fp32"].scorer is kept()
    assert runners["int8"].manifest == bundle.manifest
    gc.collect()
    assert kept() is None
    assert list(runners.only(["fp32"])) == ["fp32"]
    with pytest.raises(KeyError):
        runners.only(["fp32"])["int8"]
