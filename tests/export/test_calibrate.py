"""Text data is added to a bundle by writing the next version."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bundle.names import CARD, PROFILES
from lingon.bundle.store import Bundle, open_bundle, write_bundle
from lingon.cli.main import main
from lingon.errors import BundleError, SettingsError
from lingon.export.text_data import CalibrationText, add_text_data
from tests.support.echo_engine import bundle
from tests.support.repository import ROOT
from tests.support.shipped_model import MODEL

DATA = ROOT / "tests" / "data"
PAIRS = [("I know Tom.", "Ich kenne Tom."), ("Rome is here.", "Rom ist hier.")] * 500


@pytest.fixture
def old(tmp_path: Path) -> Bundle:
    """Return a bundle without text data."""
    made = bundle(tmp_path / "made")
    files = {name: made.read(name) for name in made.manifest.checksums}
    files[CARD] = b"# en-de, version 1\n\nA model.\n"
    return write_bundle(tmp_path / "en-de" / "1", replace(made.manifest, version=1, text=None), files)


def test_the_next_version_has_the_words_and_otherwise_the_same_files(old: Bundle):
    written = add_text_data(old.folder, CalibrationText.of(PAIRS))
    found = open_bundle(old.folder.parent)
    found.verify()
    assert found.folder == written.folder == old.folder.absolute().parent / "2"
    assert found.manifest.text is not None
    assert found.manifest.text.words == ("Tom",)
    unchanged = {name: digest for name, digest in old.manifest.checksums.items() if name != CARD}
    assert {name: found.manifest.checksums[name] for name in unchanged} == unchanged
    card = found.read(CARD).decode()
    assert card.startswith("# en-de, version 2\n")
    assert "keeps: Tom." in card


def test_the_version_is_higher_than_one_that_is_being_copied(old: Bundle):
    (old.folder.parent / "7").mkdir()
    assert add_text_data(old.folder, CalibrationText.of(PAIRS)).manifest.version == 8


def test_text_data_can_be_measured_anew(old: Bundle):
    first = add_text_data(old.folder, CalibrationText.of(PAIRS))
    second = add_text_data(first.folder, CalibrationText.of([("I know Rome.", "Ich kenne Rome.")] * 1000))
    assert first.manifest.text is not None
    assert second.manifest.text is not None
    assert (first.manifest.text.words, second.manifest.text.words) == (("Tom",), ("Rome",))
    assert PROFILES in first.manifest.checksums
    assert first.manifest.text.lengths
    assert first.read(PROFILES) != second.read(PROFILES)
    card = second.read(CARD).decode()
    assert "keeps: Rome." in card
    assert "Tom" not in card


def test_too_little_training_text_is_refused_and_the_text_data_stays(old: Bundle):
    """A version without the lengths and the profiles of the one before was written, because few pairs tell neither."""
    first = add_text_data(old.folder, CalibrationText.of(PAIRS))
    few = [*PAIRS[:999], ("no translation", " ")]
    with pytest.raises(SettingsError, match=r"training text .*1,000 .*999"):
        add_text_data(first.folder, CalibrationText.of(few))
    assert open_bundle(old.folder.parent).folder == first.folder


def test_the_confidence_stays_if_there_is_no_held_out_text(tmp_path: Path):
    shipped = open_bundle(MODEL)
    copied = tmp_path / "en-de" / shipped.folder.name
    shutil.copytree(shipped.folder, copied)
    found = add_text_data(copied, CalibrationText.of(PAIRS))
    assert found.manifest.text is not None
    assert shipped.manifest.text is not None
    assert shipped.manifest.text.confidence is not None
    assert found.manifest.text.confidence == shipped.manifest.text.confidence
    assert found.manifest.text.words != shipped.manifest.text.words
    assert "| translations | mean confidence |" in found.read(CARD).decode()


@pytest.mark.parametrize("beside", [True, False])
def test_a_folder_whose_name_is_no_number_is_no_version(old: Bundle, beside: bool):
    folder = old.folder.parent / "old"
    if beside:
        shutil.copytree(old.folder, folder)
    else:
        old.folder.rename(folder)
    before = sorted(old.folder.parent.iterdir())
    with pytest.raises(SettingsError, match=r"/old: .* got 'old'; name models/NAME"):
        add_text_data(folder, CalibrationText.of(PAIRS))
    assert sorted(old.folder.parent.iterdir()) == before


def test_a_bundle_that_is_damaged_is_refused(old: Bundle):
    (old.folder / CARD).write_text("another card")
    with pytest.raises(BundleError, match=CARD):
        add_text_data(old.folder, CalibrationText.of(PAIRS))
    assert [path.name for path in sorted(old.folder.parent.iterdir())] == ["1"]


def test_the_confidence_is_fitted_to_what_the_bundle_translates(tmp_path: Path):
    sources, targets = ((DATA / f"tatoeba.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de"))
    pairs = list(zip(sources, targets, strict=True))
    copied = tmp_path / "en-de" / open_bundle(MODEL).folder.name
    shutil.copytree(open_bundle(MODEL).folder, copied)
    told: list[str] = []
    found = add_text_data(copied, CalibrationText.of(pairs * 2, pairs[:220], [("hm", "Katze")] * 10), told.append)
    assert found.manifest.text is not None
    confidence = found.manifest.text.confidence
    assert confidence is not None
    assert sum(each.sentences for each in confidence.reliability) == 2 * 220  # greedy and beam search
    assert 0 < confidence.low < 0.5
    assert confidence.weights["root"] < 0  # a translation with less likely tokens is less sure
    assert "440 translations of held-out text" in told[0]
    assert float(re.findall(r"AUROC ([0-9.]+)", told[1])[0]) > 0.65
    assert "| translations | mean confidence |" in found.read(CARD).decode()


def test_a_confidence_needs_enough_sentences(tmp_path: Path):
    copied = tmp_path / "en-de" / "1"
    shutil.copytree(open_bundle(MODEL).folder, copied)
    with pytest.raises(SettingsError, match="needs 200 held-out sentences that the model reads, got 1"):
        add_text_data(copied, CalibrationText.of(PAIRS, [("Tom", "Tom"), ("word " * 1000, "Wort")]))
    assert [path.name for path in sorted(copied.parent.iterdir())] == ["1"]


def test_text_of_other_kinds_alone_is_refused(old: Bundle, capsys: pytest.CaptureFixture[str]):
    files = [str(DATA / f"tatoeba.{side}") for side in ("en", "de")]
    assert main(["calibrate", str(old.folder), "--train-data", *files, "--other-data", *files]) == 2
    assert (
        capsys.readouterr().err == "lingon: error: --other-data needs --valid-data: the confidence is fitted to both\n"
    )


@pytest.mark.parametrize("option", ["--valid-data", "--other-data"])
def test_held_out_text_without_a_pair_is_refused(
    old: Bundle, tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
):
    """Its confidence would else silently be that of the old version."""
    files = [str(DATA / f"tatoeba.{side}") for side in ("en", "de")]
    empty = tmp_path / "empty"
    empty.write_text("\n")
    given = {"--train-data": files, "--valid-data": files, option: [str(empty), str(empty)]}
    arguments = [word for name, pair in given.items() for word in (name, *pair)]
    assert main(["calibrate", str(old.folder), *arguments]) == 2
    assert capsys.readouterr().err == f"lingon: error: {empty}: has no line with text in both files\n"
    assert [path.name for path in sorted(old.folder.parent.iterdir())] == ["1"]
