"""The text on which the ranges of 8-bit products are measured, and the limits of the text of the gates."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from lingon.bundle.store import open_bundle
from lingon.export.calibration import calibration_sentences
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.serving import in_process
from lingon.training import evaluation
from lingon.training.checkpoint import Checkpoint, save_checkpoint
from lingon.training.corpus import Pair
from lingon.training.search import SearchSettings
from tests.support.random_models import random_checkpoint


@pytest.mark.parametrize("count", [1, 3, 101, 150, 199, 200, 500])
def test_sentences_are_evenly_spaced_in_the_whole_text(checkpoint: Checkpoint, pairs: list[Pair], count: int) -> None:
    encoder = checkpoint.tokenizer
    known = [(encoder.encode_source(pair.source), encoder.encode_target(pair.target)) for pair in pairs]
    places = [known.index(each) for each in calibration_sentences(checkpoint, pairs, count)]
    assert len(places) == min(count, len(pairs))
    steps = [after - before for before, after in pairwise([*places, len(pairs)])]
    assert places[0] == 0
    assert max(steps) - min(steps) <= 1


@pytest.fixture
def checkpoint(tmp_path: Path, pairs: list[Pair]) -> Checkpoint:
    """A checkpoint that spells no character by bytes: the server decodes a text with a broken one again."""
    return random_checkpoint(tmp_path, pairs, byte_pieces=False)


@pytest.fixture
def both(checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint that reads 20 tokens of its 32 positions, and its bundle."""
    given = replace(checkpoint, folder=tmp_path / "saved")
    save_checkpoint(given.folder, given.config, given.tokenizer, given.model, given.progress)
    settings = ExportSettings(precisions=("fp32",), shortlist=None)
    return given.folder, export_checkpoint(given, tmp_path / "digits", ExportTexts(pairs[:4]), settings).folder


def test_evaluate_reads_a_line_of_any_length_in_the_same_parts(both: tuple[Path, Path], checkpoint: Checkpoint) -> None:
    lines = [" ".join(str(place * 7 % 10) for place in range(digits)) for digits in (5, 18, 19, 20, 23, 29, 31, 40, 90)]
    lines += ["", "1 2, 3. 4 5 6 7 8 9 1! 2 3 4 5 6 7 8 9 1 2 3 4"]
    lengths = {len(checkpoint.tokenizer.encode_source(line)) for line in lines}
    assert any(20 < length <= 32 for length in lengths), "some line is between the two limits"
    search = {"beam_size": 2, "length_penalty": 1.0, "device": "cpu"}
    of_checkpoint = evaluation.translate_lines(both[0], lines, **search)  # type: ignore[arg-type]
    assert of_checkpoint == in_process.translate_lines(both[1], lines, **search)  # type: ignore[arg-type]
    assert len(set(of_checkpoint.lines)) > len(lines) // 3


def test_the_limits_of_a_bundle_are_those_of_the_reference_search(
    both: tuple[Path, Path], checkpoint: Checkpoint
) -> None:
    limits, search = open_bundle(both[1]).manifest.limits, SearchSettings()
    assert limits.max_source_tokens == checkpoint.config.max_source_tokens == 20
    for length in range(1, 21):
        assert limits.max_output(length) == search.max_length(length, checkpoint.config.model.max_positions)
