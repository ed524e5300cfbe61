"""The export of a trained model of several languages, whose text is of one pair of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bundle import open_bundle
from lingon.cli.main import main
from lingon.errors import SettingsError
from lingon.export.calibration import calibration_sentences
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, Texts
from lingon.training.checkpoint import Checkpoint, save_checkpoint
from lingon.training.config import LanguageSettings
from lingon.training.data.corpus import Pair
from lingon.training.evaluation import translate_lines
from tests.support.checkpoints import accept_any_quality

REFUSED = "--shortlist: text of one pair of languages would leave out the pieces of the others; "
SMALL = ("--gate-sentences", "2", "--parity-sentences", "3", "--beam-size", "2")


def of_languages(checkpoint: Checkpoint, sources: str, targets: str) -> Checkpoint:
    """Return a checkpoint of en to de and others, whose codes are the digits 1 to 9."""
    settings = LanguageSettings.model_validate(
        {
            "sources": [{"language": tag} for tag in sources.split()],
            "targets": [{"language": tag, "forced": [str(place)]} for place, tag in enumerate(targets.split(), 1)],
        }
    )
    config = checkpoint.config.model_copy(update={"languages": settings})
    return replace(checkpoint, config=config, tokenizer=config.tokenizer_of_pair(checkpoint.tokenizer))


def saved(checkpoint: Checkpoint, folder: Path) -> str:
    save_checkpoint(folder, checkpoint.config, checkpoint.tokenizer, checkpoint.model, checkpoint.progress)
    return str(folder)


@pytest.mark.parametrize(("sources", "targets"), [("en", "de fr"), ("en fr", "de")])
def test_no_shortlist_is_made_unless_it_is_asked_for(
    checkpoint: Checkpoint,
    tmp_path: Path,
    sources: str,
    targets: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accept_any_quality(monkeypatch)
    given = saved(of_languages(checkpoint, sources, targets), tmp_path / "saved")
    for asked in (["--shortlist"], ["--shortlist-by-default"]):
        assert main(["export", given, str(tmp_path / "many"), *asked]) == 2
        shown = capsys.readouterr().err
        assert REFUSED in shown
        assert len(shown.splitlines()) == 1
    assert not (tmp_path / "many").exists()
    assert main(["export", given, str(tmp_path / "many"), "--precision", "int8", *SMALL]) == 0
    assert capsys.readouterr().err.count("no shortlist: text of one pair of languages would leave out") == 1
    manifest = open_bundle(tmp_path / "many").manifest
    assert manifest.shortlist is None
    assert manifest.precisions["int8"].gate == "passed"


def test_one_that_serves_one_pair_has_a_shortlist(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    given = saved(of_languages(checkpoint, "en", "de"), tmp_path / "saved")
    assert main(["export", given, str(tmp_path / "one"), "--precision", "fp32", *SMALL]) == 0
    assert open_bundle(tmp_path / "one").manifest.shortlist is not None


def test_a_shortlist_of_one_pair_is_refused_before_anything_is_built(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path
) -> None:
    several, lines = of_languages(checkpoint, "en", "de fr"), list[str]()
    with pytest.raises(SettingsError, match=f"^{REFUSED}"):
        export_checkpoint(several, tmp_path / "many", Texts(pairs[:2], pairs), ExportSettings(), lines.append)
    assert not lines
    assert not (tmp_path / "many").exists()


def test_ranges_are_measured_in_all_target_languages(checkpoint: Checkpoint, pairs: list[Pair]) -> None:
    several = of_languages(checkpoint, "en", "de fr it")
    found = calibration_sentences(several, pairs, 60)
    codes = [several.tokenizer.target.piece_to_id(code) for code in "123"]
    assert [target[0] for _, target in found] == [code for code in codes for _ in range(20)]
    assert len({tuple(source) for source, _ in found}) == 60
    assert max(len(target) for _, target in found) == several.model.settings.max_positions - 1  # some never end
    one = of_languages(checkpoint, "en fr", "de")
    assert [target[1:] for _, target in calibration_sentences(one, pairs, 9)] == [
        one.tokenizer.encode_target(pairs[place * len(pairs) // 9].target) for place in range(9)
    ]


def test_a_checkpoint_translates_between_two_different_languages(checkpoint: Checkpoint, tmp_path: Path) -> None:
    given = Path(saved(of_languages(checkpoint, "en", "de en"), tmp_path / "saved"))
    assert translate_lines(given, ["1 2"], beam_size=1, length_penalty=0.0, target_language="de").language == "de"
    with pytest.raises(SettingsError, match="--target-language must differ from --source-language, got 'en'"):
        translate_lines(given, ["1 2"], beam_size=1, length_penalty=0.0, target_language="en")
