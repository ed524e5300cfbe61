"""The shipped bundle on 500 sentence pairs that it was not trained on; for effects of batches see tests/invariance."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lingon.bundle.names import CARD
from lingon.bundle.store import Bundle, open_bundle
from lingon.scoring import score
from lingon.serving.in_process import translate_lines
from tests.support.repository import ROOT

DATA = ROOT / "tests" / "data"
SOURCES = (DATA / "tatoeba.en").read_text(encoding="utf-8").splitlines()
REFERENCES = (DATA / "tatoeba.de").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return open_bundle(ROOT / "models" / "en-de")


def test_it_is_intact_and_small_and_reports_its_gates(bundle: Bundle) -> None:
    bundle.verify()
    assert sum(path.stat().st_size for path in bundle.folder.rglob("*") if path.is_file()) <= 36_000_000
    assert bundle.manifest.precisions["fp32"].gate == bundle.manifest.precisions["int8"].gate == "passed"
    quality = bundle.manifest.precisions["int8"].report["quality"]
    assert abs(quality["bleu"] - quality["fp32_bleu"]) <= 0.2
    assert abs(quality["chrf"] - quality["fp32_chrf"]) <= 0.3
    assert quality["sentences"] >= 2000
    report = bundle.manifest.precisions["fp32"].report
    for search in ("greedy", "beam 4"):
        assert report[search]["sentences"] >= 500
        assert report[search]["identical"] + len(report[search]["excused"]) == report[search]["sentences"]
    card = bundle.read(CARD).decode()
    for text in ("tatoeba.org", "CC BY 2.0", "MPL 2.0", "BLEU", "chrF", "version:"):
        assert text in card


def test_it_holds_no_path_of_the_machine_that_made_it(bundle: Bundle) -> None:
    for name in bundle.manifest.checksums:
        assert b"/work/" not in bundle.read(name), name
        assert b"/home/" not in bundle.read(name), name


def test_it_reaches_the_quality_that_its_card_states(bundle: Bundle) -> None:
    found = translate_lines(bundle.folder, SOURCES, beam_size=4, length_penalty=1.0, device="cpu").lines
    scores = score(found, REFERENCES)
    assert scores.bleu > 33
    assert scores.chrf > 53


def test_all_its_files_are_in_the_repository(bundle: Bundle) -> None:
    listed = subprocess.run(
        ["git", "ls-files", str(bundle.folder)], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not listed:  # the tests run in a source archive, not in a clone
        return
    names = {Path(name).relative_to(bundle.folder.relative_to(ROOT)).as_posix() for name in listed}
    assert names == {*bundle.manifest.checksums, "manifest.json"}
