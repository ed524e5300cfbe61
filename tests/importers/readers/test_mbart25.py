"""The mBART of 25 languages: the code of the target is read first, so that a bundle serves one target language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import SettingsError, SourceModelError
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits import transformers as toolkit
from lingon.serving.in_process import LocalTranslator
from lingon.text import BOS, EOS, normalise
from lingon.training.corpus import Pair
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import lines, save_multilingual, silent

ALL = [normalise(text) for text in lines("en")[:40]]
TEXTS = ALL[:10]
SIDES = (["en", "fr"], ["de"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_multilingual(tmp_path_factory.mktemp("zoo") / "mbart25", "mbart25", seed=3, ends=3.0)


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, ImportSettings(languages=SIDES), silent)


def test_ids_and_tokens_are_those_of_transformers(imported: Imported, folder: Path) -> None:
    found = toolkit.compare(imported.checkpoint, imported.source, folder, ALL)
    assert found[0].endswith("ids of 40 texts are the same")
    assert [line.partition("tokens of ")[2][:8] for line in found[1:3]] == ["40 of 40"] * 2


def test_the_code_of_the_source_follows_the_end_token_and_nothing_is_forced(imported: Imported) -> None:
    tokenizer, numbering = imported.checkpoint.tokenizer, imported.source.source
    ids = tokenizer.encode_source(TEXTS[0])
    assert ids[-2] == EOS
    assert numbering.pieces[ids[-1]] == "en_XX"
    assert tokenizer.languages.forced == ()
    config = json.loads((imported.checkpoint.folder / "config.json").read_text(encoding="utf-8"))
    assert numbering.rows[BOS] == config["decoder_start_token_id"]


def test_one_bundle_serves_several_sources(imported: Imported, tmp_path: Path) -> None:
    texts = ExportTexts([Pair(text, "") for text in TEXTS])
    settings = ExportSettings(precisions=("fp32",), shortlist=None, parity_sentences=4, gate_sentences=4)
    bundle = pipeline.export_imported(imported, tmp_path / "models" / "many", texts, settings, silent)
    assert (bundle.manifest.source_language, bundle.manifest.target_language) == ("mul", "de")
    with LocalTranslator(bundle.folder, device="cpu", threads=1) as translator:
        english, french = (
            translator.translate(pb.TranslateRequest(texts=TEXTS, source_language_code=source))
            for source in ("en", "fr")
        )
    assert [reply.target_language_code for reply in (english, french)] == ["de", "de"]
    assert [each.hypotheses[0].text for each in english.results] != [each.hypotheses[0].text for each in french.results]


def test_another_target_is_refused(folder: Path) -> None:
    with pytest.raises(SettingsError, match="has no fr; it has de"):
        pipeline.read_source(folder, ImportSettings(languages=(["en"], ["fr"])), silent)
    with pytest.raises(SettingsError, match="has no de; it has "):
        pipeline.read_source(folder, ImportSettings(languages=(["de"], ["de"])), silent)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (2, r"decoder_start_token_id must be that of the code of the target language \(\d+ to \d+\), got 2"),
        (10**5, "decoder_start_token_id must be that of the code of the target language"),
        (None, "has no decoder_start_token_id"),
    ],
)
def test_a_start_that_is_no_language_is_one_line(tmp_path: Path, start: Any, message: str) -> None:
    folder = save_multilingual(tmp_path / "mbart25", "mbart25")
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(values | {"decoder_start_token_id": start}), encoding="utf-8")
    with pytest.raises(SourceModelError, match=message) as caught:
        pipeline.read_source(folder, ImportSettings(languages=SIDES), silent)
    assert "\n" not in str(caught.value)
