"""FSMT models of Transformers: Moses tokens, byte-pair merges, two vocabularies; read, exported, served."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from lingon.errors import SettingsError, SourceModelError, Unsupported
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.serving.in_process import LocalTranslator
from lingon.serving.translation.options import WHOLE
from lingon.text import normalise
from lingon.training.corpus import Pair
from lingon.training.search import SearchSettings, translate
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import lines, save_fsmt, silent

TEXTS = [normalise(text) for text in lines("en")[:40]]
SAME_LOGITS = 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_fsmt(tmp_path_factory.mktemp("zoo") / "fsmt", seed=3, ends=3.4)


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, ImportSettings(), silent)


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Path:
    """A copy of the files, which a test may change."""
    return Path(shutil.copytree(folder, tmp_path / "fsmt"))


def test_ids_are_those_of_transformers(imported: Imported, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    hostile = [
        "”Tom” – isn’t “here”, U.S. & <b>e.g.</b> [x]|y",
        "naïve ß Привет 東京 a-b-c 1,000.5 ...",
        "@-@ &amp;",
    ]
    for text in [*lines("en")[:200], *hostile]:
        ids = imported.checkpoint.tokenizer.encode_source(normalise(text))
        rows = [imported.source.source.rows[each] for each in ids]
        assert rows == tokenizer(normalise(text)).input_ids, text


def test_texts_of_ids_are_those_of_transformers(imported: Imported, folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer, ours = AutoTokenizer.from_pretrained(folder), imported.checkpoint.tokenizer
    for text in lines("de")[:200]:
        ids = ours.encode_target(normalise(text))
        rows = [imported.source.target.rows[each] for each in ids if each > 3]
        assert ours.decode(ids) == tokenizer.decode(rows), text


def test_logits_are_those_of_transformers(imported: Imported, folder: Path) -> None:
    """Its `generate` is not compared: in 4.57 it gives every token with a cache the first position."""
    from transformers import FSMTForConditionalGeneration

    theirs = FSMTForConditionalGeneration.from_pretrained(folder).eval()
    model, (sources, targets) = imported.checkpoint.model, (imported.source.source.rows, imported.source.target.rows)
    ids = [imported.checkpoint.tokenizer.encode_source(text) for text in TEXTS]
    found = translate(model, ids, SearchSettings(beam_size=4, length_penalty=1.0))
    assert len({best.tokens for best, *_ in found}) >= 10
    for source, (best, *_) in zip(ids, found, strict=True):
        given = torch.tensor([[1, *best.tokens]])
        with torch.inference_mode():
            ours = model(torch.tensor([source]), torch.tensor([len(source)]), given)[0, :, 4:]
            expected = theirs(
                input_ids=torch.tensor([[sources[each] for each in source]]),
                decoder_input_ids=torch.tensor([[targets[each] for each in given[0].tolist()]]),
                use_cache=False,
            ).logits[0][:, list(targets[4:])]
        said = [place for place in range(ours.size(1)) if place + 4 not in model.settings.never_generated]
        assert float((ours - expected)[:, said].abs().max()) < SAME_LOGITS


@pytest.mark.parametrize(
    ("file", "field", "value", "said"),
    [
        ("config.json", "langs", ["en"], "langs must be the codes of two languages"),
        ("config.json", "src_vocab_size", 7, "src_vocab_size must be the number of pieces of vocab-src.json"),
        ("config.json", "pad_token_id", 2, "pad_token_id must be the id of <pad> in vocab-src.json (1)"),
        ("config.json", "decoder_start_token_id", 0, "decoder_start_token_id must be the id of </s> (2)"),
        ("tokenizer_config.json", "do_lower_case", True, "do_lower_case must be false"),
    ],
)
def test_a_wrong_field_is_named(changed: Path, file: str, field: str, value: object, said: str) -> None:
    path = changed / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(SourceModelError, match="^" + str(path)) as raised:
        pipeline.read_source(changed, ImportSettings(), silent)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "must have 1 to 1,048,576 merges, has 0"),
        ("#version: 0.1\na b\n", "the version of the merges must be 0.2, is '0.1'"),
        ("a b\nabc\n", "line 2 must be two symbols, is 'abc'"),
        ("a b c\n", "line 1 must be two symbols, is 'a b c'"),
    ],
)
def test_wrong_merges_are_named(changed: Path, content: str, said: str) -> None:
    (changed / "merges.txt").write_text(content)
    with pytest.raises(SourceModelError) as raised:
        pipeline.read_source(changed, ImportSettings(), silent)
    assert str(raised.value) == f"{changed / 'merges.txt'}: {said}"


def test_what_needs_sentencepiece_is_refused_in_one_line(imported: Imported, tmp_path: Path) -> None:
    text = tmp_path / "text.en"
    text.write_text("Tom.\n")
    with pytest.raises(SettingsError, match="--trim needs a vocabulary of sentencepiece"):
        pipeline.trim_imported(imported, [text], silent)


def test_a_bundle_serves_it(imported: Imported, tmp_path: Path) -> None:
    """Translations are those of PyTorch, links lie within the texts, and words are refused."""
    settings = ExportSettings(precisions=("fp32",), shortlist=None, parity_sentences=10, gate_sentences=10)
    texts = ExportTexts([Pair(text, "") for text in TEXTS[:20]])
    bundle = pipeline.export_imported(imported, tmp_path / "en-de", texts, settings, silent)
    tokenizer = imported.checkpoint.tokenizer
    sources = [tokenizer.encode_source(text) for text in TEXTS]
    found = translate(imported.checkpoint.model, sources, SearchSettings(beam_size=4, length_penalty=1.0))
    with LocalTranslator(bundle.folder, device="cpu") as translator:
        options = pb.DecodingOptions(beam_size=4, length_penalty=1.0, return_alignment=True, return_tokens=True)
        reply = translator.translate(pb.TranslateRequest(texts=TEXTS, options=options, text=WHOLE))
        shown = [result.hypotheses[0] for result in reply.results]
        assert [each.text for each in shown] == [tokenizer.decode(best.tokens).strip() for best, *_ in found]
        assert sum(len(each.alignment) for each in shown) > 20
        for text, each in zip(TEXTS, shown, strict=True):
            assert all(0 <= link.source.begin <= link.source.end <= len(text) for link in each.alignment)
            assert all(0 <= link.target.begin <= link.target.end <= len(each.text) for link in each.alignment)
        refused = pb.DecodingOptions(forbidden_words=["Tom"])
        with pytest.raises(Unsupported, match=r"options\.forbidden_words: the model writes Moses tokens"):
            translator.translate(pb.TranslateRequest(texts=TEXTS[:1], options=refused))
