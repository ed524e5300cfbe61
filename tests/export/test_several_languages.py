"""The export of a trained model of several languages, whose text is of one pair of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lingon.bundle.store import open_bundle
from lingon.cli.main import main
from lingon.errors import SettingsError
from lingon.export.calibration import calibration_sentences
from lingon.export.cli import held_out_pairs, other_sources
from lingon.export.model_card import model_card
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.training.checkpoint import Checkpoint, save_checkpoint
from lingon.training.config import LanguageSettings
from lingon.training.corpus import Pair
from lingon.training.evaluation import translate_lines
from tests.support.bundles import MANIFEST
from tests.support.random_models import accept_any_quality

REFUSED = "--shortlist: text of one pair of languages would leave out the pieces of the others; "
VALID = ("valid.source", "valid.target")
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


def of_several_texts(checkpoint: Checkpoint, **languages: str) -> Checkpoint:
    """Return a checkpoint whose settings have its corpora twice; languages: of the second ones."""
    data = checkpoint.config.data
    twice = {
        name: (*corpora, *(corpus.model_copy(update=languages) for corpus in corpora))
        for name, corpora in (("train", data.train), ("valid", data.valid))
    }
    config = checkpoint.config.model_copy(update={"data": data.model_copy(update=twice)})
    return replace(checkpoint, config=config)


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
        export_checkpoint(several, tmp_path / "many", ExportTexts(pairs[:2], pairs), ExportSettings(), lines.append)
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


def test_ranges_are_measured_on_the_text_of_every_trained_pair(checkpoint: Checkpoint, pairs: list[Pair]) -> None:
    """A source language that is not that of the gates has no other text."""
    several = of_several_texts(of_languages(checkpoint, "en fr", "de it"), source_language="fr", target_language="it")
    others = [pair._replace(languages=("fr", "it")) for pair in pairs[:50]]
    found = calibration_sentences(several, [*pairs[:50], *others], 60)
    codes = [several.tokenizer.target.piece_to_id(code) for code in "12"]
    assert [target[0] for _, target in found] == [*codes[:1] * 15, *codes[1:] * 15, *codes[1:] * 30]
    written = [several.tokenizer.encode_target(pair.target) for pair in others]
    assert all(target[1:] in written for _, target in found[30:])


def test_the_gates_take_the_validation_text_of_the_pair_of_the_settings(checkpoint: Checkpoint) -> None:
    several = of_several_texts(of_languages(checkpoint, "en", "de fr"), target_language="fr")
    assert held_out_pairs(several) == held_out_pairs(checkpoint)
    french = several.config.data.model_copy(update={"valid": several.config.data.valid[1:]})
    without = replace(several, config=several.config.model_copy(update={"data": french}))
    with pytest.raises(
        SettingsError, match="its settings have no validation text of en:de; name some with --gate-data"
    ):
        held_out_pairs(without)


def test_the_card_says_which_pairs_the_training_text_has(checkpoint: Checkpoint) -> None:
    several = of_several_texts(of_languages(checkpoint, "en", "de fr it"), target_language="fr")
    languages = several.config.languages
    assert languages is not None
    manifest = replace(MANIFEST, languages=languages.resolve(several.tokenizer))
    card = model_card(several, manifest)
    assert "that translates en to de, fr, it.\n" in card
    assert "\n- pairs of languages in the training text: en:de, en:fr, of 3\n" in card
    assert "validation text: valid.source, valid.target\n" in card
    assert "pairs of languages" not in model_card(checkpoint, MANIFEST)


def test_int8_is_compared_with_fp32_on_the_validation_text_of_other_source_languages(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    several = of_several_texts(of_languages(checkpoint, "en fr", "de it"), source_language="fr", target_language="it")
    given = saved(several, tmp_path / "saved")
    for name, more, compared in (("own", [], {"it", "fr:it"}), ("given", ["--gate-data", *VALID], {"it"})):
        files = [str(tmp_path / "text" / each) if each in VALID else each for each in more]
        assert main(["export", given, str(tmp_path / name), "--precision", "int8", *SMALL, *files]) == 0
        quality = open_bundle(tmp_path / name).manifest.precisions["int8"].report["quality"]
        assert {label: each["sentences"] for label, each in quality["languages"].items()} == dict.fromkeys(compared, 2)


def test_sources_of_other_languages_that_are_too_long_are_left_out(checkpoint: Checkpoint, tmp_path: Path) -> None:
    several = of_several_texts(of_languages(checkpoint, "en fr", "de it"), source_language="fr", target_language="it")
    known = other_sources(several)
    assert list(known) == [("fr", "it")]
    assert len(known["fr", "it"]) == 50
    (tmp_path / "text" / "valid.source").write_text("1 2\n\n" + "3 " * 60 + "\n" * 48)
    assert other_sources(several) == {("fr", "it"): ["1 2"]}
    assert other_sources(checkpoint) == {}
