"""`--shortlist`: the model's own, one of a file, one that is learned, or none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lingon.bundle.names import SHORTLIST
from lingon.bundle.store import Bundle, open_bundle
from lingon.cli.main import main
from lingon.errors import SettingsError, SourceModelError
from lingon.importers import pipeline
from lingon.importers.pipeline import LEARN, NONE, OWN, ImportSettings, pairs_to_learn
from lingon.text import EOS, FORBIDDEN
from lingon.training.corpus import Pair
from tests.support.foreign_models import DATA, lines, save_opus_mt, silent
from tests.support.marian_models import lexicon

GATES = ("--gate-source", str(DATA / "tatoeba.en"), "--gate-sentences", "20", "--parity-sentences", "5")
OPTIONS = ("--precision", "fp32", "--least-log-prob", "-9", "--no-compare")


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opus_mt(tmp_path_factory.mktemp("opus") / "opus", seed=6)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opus_mt(tmp_path_factory.mktemp("several") / "opus", codes=[">>deu<<", ">>fra<<"], seed=6)


@pytest.fixture(autouse=True)
def few_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model may lose more than a trained one by a shortlist: here it may lose all."""
    monkeypatch.setattr("lingon.export.gates_text.LEAST_LIKE_BLEU", 0.0)
    monkeypatch.setattr("lingon.export.gates_text.LEAST_LIKE_CHRF", 0.0)


def text_lexicon(folder: Path) -> Path:
    path = folder / "lex.5.2.ende.s2t"
    path.write_text("▁mir ▁I 0.5\n▁ich ▁I 0.3\n▁das ▁I 0.1\nNULL ▁I 0.1\nunbekannt ▁I 1\n", encoding="utf-8")
    return path


def imported_with(opus: Path, choice: str) -> pipeline.Imported:
    return pipeline.read_source(opus, ImportSettings(languages=(["en"], ["de"]), shortlist=choice), silent)


def export(opus: Path, folder: Path, *options: str) -> Bundle:
    assert main(["import", str(opus), str(folder), *GATES, *OPTIONS, *options]) == 0
    return open_bundle(folder)


def test_the_lexicon_of_a_file_has_the_pieces_of_the_model(opus: Path, tmp_path: Path) -> None:
    source = imported_with(opus, str(text_lexicon(tmp_path))).source
    assert source.shortlist is not None
    pieces, shortlist = source.target.pieces, source.shortlist
    number = source.source.pieces.index("▁I")
    found = shortlist.pieces[shortlist.offsets[number] : shortlist.offsets[number + 1]]
    assert {pieces[each] for each in found.tolist()} == {"▁mir", "▁ich", "▁I"} - {
        pieces[each] for each in shortlist.always
    }
    first = {source.target.rows[each] for each in shortlist.always.tolist()}
    assert first == set(range(5)) - {source.target.rows[each] for each in FORBIDDEN}
    assert EOS in shortlist.always
    assert source.facts.files[-1].name == "lex.5.2.ende.s2t"


def test_a_binary_file_is_read_too(opus: Path, tmp_path: Path) -> None:
    numbering = imported_with(opus, NONE).source.target
    rows: list[list[int]] = [[] for _ in range(max(numbering.rows))]
    by_piece = dict(zip(numbering.pieces, numbering.rows, strict=True))
    rows[by_piece["▁I"]] = [by_piece["▁mir"], by_piece["▁ich"]]
    (tmp_path / "lex.bin").write_bytes(lexicon(rows, 5))
    found = [imported_with(opus, str(path)).source.shortlist for path in (tmp_path / "lex.bin", text_lexicon(tmp_path))]
    first, second = (each for each in found if each is not None)
    for name in ("always", "offsets", "pieces"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("choice", [OWN, NONE])
def test_without_one_the_bundle_has_none(opus: Path, tmp_path: Path, choice: str) -> None:
    bundle = export(opus, tmp_path / "models" / "opus", "--shortlist", choice)
    assert bundle.manifest.shortlist is None
    assert not bundle.manifest.defaults.shortlist


def test_a_bundle_uses_that_of_a_file_by_default(opus: Path, tmp_path: Path) -> None:
    bundle = export(opus, tmp_path / "models" / "opus", "--shortlist", str(text_lexicon(tmp_path)))
    assert bundle.manifest.defaults.shortlist
    found = imported_with(opus, str(text_lexicon(tmp_path))).source.shortlist
    assert found is not None
    assert bundle.read(SHORTLIST) == found.to_bytes()


@pytest.mark.parametrize("referenced", [True, False])
def test_one_is_learned_from_text_after_that_of_the_gates(
    opus: Path, tmp_path: Path, referenced: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--gate-reference", str(DATA / "tatoeba.de")) if referenced else ()
    bundle = export(opus, tmp_path / "models" / "opus", "--shortlist", LEARN, *more)
    assert "shortlist: 480 of 480 sentence pairs" in capsys.readouterr().err
    assert bundle.manifest.defaults.shortlist
    assert bundle.manifest.shortlist is not None


def test_missing_references_are_translations_of_the_model(opus: Path) -> None:
    loaded = imported_with(opus, LEARN).checkpoint
    sources = lines("en")[:40]
    translated = pairs_to_learn(loaded, [Pair(text, "") for text in sources])
    assert [pair.source for pair in translated] == sources
    assert len({pair.target for pair in translated}) > 1
    assert pairs_to_learn(loaded, [Pair("a", ""), Pair("b", "c")]) == [Pair("b", "c")]


@pytest.mark.parametrize("content", ["Ich I 0.5\n", "", "▁ich ▁I\n", "▁ich ▁I much\n"])
def test_a_file_that_is_no_lexicon_of_the_model_is_one_line(opus: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "lex.s2t").write_text(content, encoding="utf-8")
    with pytest.raises(SourceModelError, match=r"lex\.s2t: (has no line with|line 1 must be) a target piece") as caught:
        imported_with(opus, str(tmp_path / "lex.s2t"))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("languages", [(["en"], ["de", "fr"]), (["en"], ["all"])])
def test_one_of_several_languages_is_not_learned(several: Path, languages: tuple[Sequence[str], Sequence[str]]) -> None:
    with pytest.raises(SettingsError, match="--shortlist learn: text of one pair of languages would leave out"):
        pipeline.read_source(several, ImportSettings(languages=languages, shortlist=LEARN), silent)
    assert pipeline.read_source(several, ImportSettings(languages=(["en"], ["de"]), shortlist=LEARN), silent)
