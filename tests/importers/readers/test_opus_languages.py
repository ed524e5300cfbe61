"""Multilingual OPUS-MT: a code before the source chooses the target language, and one bundle serves several of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingon.errors import SettingsError
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits import transformers as toolkit
from lingon.importers.toolkits.comparison import never_generated
from lingon.serving.in_process import LocalTranslator
from lingon.serving.translation.options import WHOLE
from lingon.text import normalise
from lingon.training.corpus import Pair
from lingon.training.search import SearchSettings
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import lines, save_opus_mt, silent

CODES = [">>deu<<", ">>fra<<", ">>por_Latn<<"]
TEXTS = [normalise(text) for text in lines("en")[:12]]
BOTH = ImportSettings(languages=(["en"], ["de", "fr"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opus_mt(tmp_path_factory.mktemp("opus") / "en-mul", codes=CODES, seed=6)


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, BOTH, silent)


@pytest.mark.parametrize("target", ["de", "fr", "pt"])
def test_the_code_of_the_first_target_is_compared_with_transformers(folder: Path, target: str) -> None:
    found = pipeline.read_source(folder, ImportSettings(languages=(["en"], [target])), silent)
    compared = toolkit.compare(found.checkpoint, found.source, folder, TEXTS)
    assert compared[0] == "Transformers: ids of 12 texts are the same"
    assert all(line.endswith("12 of 12 texts are the same") for line in compared[1:])


def test_one_bundle_serves_the_chosen_targets_with_the_tokens_of_transformers(
    folder: Path, imported: Imported, tmp_path: Path
) -> None:
    texts = ExportTexts([Pair(text, "") for text in TEXTS])
    settings = ExportSettings(precisions=("fp32",), shortlist=None, parity_sentences=4, gate_sentences=4)
    bundle = pipeline.export_imported(imported, tmp_path / "models" / "many", texts, settings, silent)
    assert (bundle.manifest.source_language, bundle.manifest.target_language) == ("en", "mul")
    theirs, rows = toolkit.TransformersToolkit(folder), imported.source.target.rows
    never = never_generated(imported.source.target)
    search, replies = SearchSettings(beam_size=4, length_penalty=1.0), []
    options = pb.DecodingOptions(beam_size=4, num_hypotheses=1, length_penalty=1.0, return_tokens=True)
    limits = bundle.manifest.limits
    with LocalTranslator(bundle.folder, device="cpu", threads=1) as translator:
        for target, code in (("de", ">>deu<<"), ("fr", ">>fra<<")):
            request = pb.TranslateRequest(texts=TEXTS, target_language_code=target, options=options, text=WHOLE)
            replies.append(translator.translate(request))
            for text, result in zip(TEXTS, replies[-1].results, strict=True):
                ids = theirs.encode(f"{code} {text}")
                found = theirs.generate(ids, never, search, limits.max_output(len(ids)))
                new = {row: number for number, row in enumerate(rows)}
                pieces = imported.checkpoint.tokenizer.target_pieces([new[each] for each in found])
                assert [token.piece for token in result.hypotheses[0].tokens] == pieces
    assert [reply.target_language_code for reply in replies] == ["de", "fr"]
    first, second = ([each.hypotheses[0].text for each in reply.results] for reply in replies)
    assert first != second


def test_a_code_in_a_text_stays_text(folder: Path, imported: Imported) -> None:
    """It must not choose another language than the request does."""
    tokenizer, numbering = imported.checkpoint.tokenizer, imported.source.source
    codes = {number for number, piece in enumerate(numbering.pieces) if piece in CODES}
    assert len(codes) == len(CODES)
    for text in (">>fra<< Tom", "Tom >>fra<<", ">>fra<<", ">>deu<< >>fra<< Tom"):
        pieces = tokenizer.unframed(tokenizer.encode_source(text))
        assert not codes.intersection(pieces), text
        assert tokenizer.encode_source(text)[0] in codes


def test_a_model_with_one_code_that_it_does_not_need_is_of_one_pair(tmp_path: Path) -> None:
    one = save_opus_mt(tmp_path / "one", codes=[">>fra<<"], seed=6)
    assert pipeline.read_source(one, ImportSettings(), silent).source.languages is None


def test_a_model_whose_only_code_is_its_target_needs_it(tmp_path: Path) -> None:
    one = save_opus_mt(tmp_path / "one", codes=[">>deu<<"], seed=6)
    found = pipeline.read_source(one, ImportSettings(languages=(["en"], ["de"])), silent)
    assert found.checkpoint.tokenizer.languages.before
    assert toolkit.compare(found.checkpoint, found.source, one, TEXTS[:4])[0].endswith("ids of 4 texts are the same")


def test_a_target_that_has_no_code_is_named(folder: Path) -> None:
    with pytest.raises(SettingsError, match="has no it; it has de, fr, pt"):
        pipeline.read_source(folder, ImportSettings(languages=(["en"], ["it"])), silent)
