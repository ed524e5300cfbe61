"""T5, T5 v1.1, mT5 and MADLAD-400 become the same model in Lingon: ids, logits, tokens, and the bundle."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.cli.main import main
from lingon.errors import LingonError, SettingsError, SourceModelError
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.files.tensors import SAFETENSORS
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits import transformers as toolkit
from lingon.serving.in_process import LocalTranslator
from lingon.text import normalise
from lingon.training.corpus import Pair
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import (
    DATA,
    KINDS,
    check_logits,
    check_varied,
    config,
    lines,
    save_t5,
    silent,
    tensors,
)

TEXTS = [normalise(text) for text in lines("en")[:24]]
PAIR = ImportSettings(languages=(["en"], ["de"]))
ENDS = {"t5": 5.0}
Change = Callable[[Path], object]


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind: str = request.param
    return save_t5(tmp_path_factory.mktemp("zoo") / kind, kind, seed=2, ends=ENDS.get(kind, 2.5))


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, PAIR, silent)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_t5(tmp_path_factory.mktemp("many") / "madlad", "madlad", seed=2, ends=2.5)


@pytest.fixture
def changed(many: Path, tmp_path: Path) -> Path:
    """A copy of the files, which a test may change."""
    return Path(shutil.copytree(many, tmp_path / "madlad"))


def test_the_zoo_has_outputs_that_differ_and_end(imported: Imported) -> None:
    check_varied(imported, TEXTS)


def test_ids_and_tokens_are_those_of_transformers(folder: Path, imported: Imported) -> None:
    found = toolkit.compare(imported.checkpoint, imported.source, folder, TEXTS)
    assert found[0] == "Transformers: ids of 24 texts are the same"
    assert [line.partition("tokens of ")[2][:8] for line in found[1:]] == ["24 of 24"] * 3


def test_logits_are_those_of_transformers(folder: Path, imported: Imported) -> None:
    check_logits(imported, folder, TEXTS[:10], 1e-4)


def test_rows_without_a_piece_and_sentinels_are_never_generated(imported: Imported) -> None:
    numbering = imported.source.target
    spare = {new for new, piece in enumerate(numbering.pieces) if piece.startswith(("<spare", "<2", "<extra_id"))}
    assert len(spare) >= 12
    assert spare <= set(numbering.never)
    assert not spare & set(imported.checkpoint.tokenizer.encode_source("<2fr> <spare 3>")[1:])


def test_a_model_without_prefixes_is_one_of_the_pair_that_is_named(tmp_path: Path) -> None:
    source = save_t5(tmp_path / "mt5", "mt5")
    with pytest.raises(SettingsError, match="its files do not say the two languages"):
        pipeline.read_source(source, ImportSettings(), silent)
    found = pipeline.read_source(source, ImportSettings(languages=(["sv"], ["nb"])), silent)
    assert found.source.languages is None
    assert found.checkpoint.tokenizer.languages.before == ()


def test_a_table_that_only_the_decoder_has_is_read(many: Path, changed: Path) -> None:
    tensors = load_file(changed / SAFETENSORS)
    tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")
    save_file(tensors, changed / SAFETENSORS)
    first, second = (pipeline.read_source(each, PAIR, silent).checkpoint.model for each in (many, changed))
    assert all(torch.equal(each, second.get_parameter(name)) for name, each in first.named_parameters())


def test_a_copy_of_the_table_that_differs_is_named(changed: Path) -> None:
    tensors = load_file(changed / SAFETENSORS)
    tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"] + 1
    save_file(tensors, changed / SAFETENSORS)
    notes = pipeline.read_source(changed, PAIR, silent).source.notes
    assert "encoder.embed_tokens.weight differs from the table that it is tied to, and is not used" in notes
    assert any("overflow in float16" in note for note in notes)


QUERY = "decoder.block.1.layer.1.EncDecAttention.q.weight"
MIXED = {f"translation_{pair}": {"prefix": "x: "} for pair in ("en_to_de", "de_to_en")}
WRONG: dict[str, tuple[Change, str]] = {
    "a shape": (
        tensors(lambda found: found.update({QUERY: torch.ones(3, 32)})),
        f"{QUERY} must have shape (64, 32), has (3, 32)",
    ),
    "a missing tensor": (tensors(lambda found: found.pop(QUERY)), f"has no tensor {QUERY}"),
    "no head": (tensors(lambda found: found.pop("lm_head.weight")), "has no tensor lm_head.weight"),
    "one more": (
        tensors(lambda found: found.update({"encoder.bias": torch.ones(2)})),
        "has tensors that this form of model does not use: encoder.bias",
    ),
    "an absurd size": (config(d_kv=2**40), "config.json: d_kv must be 1 to 1,048,576, got 1099511627776"),
    "a size beyond memory": (config(d_ff=2**20, d_kv=2**20), "must have shape (4194304, 32), has (64, 32)"),
    "too many layers": (config(num_layers=1000), "has no tensor encoder.block.999.layer.0.SelfAttention.q.weight"),
    "a feed-forward": (config(feed_forward_proj="gated-mish"), 'gated-silu, got "gated-mish"'),
    "no pieces": (
        lambda folder: (folder / "spiece.model").unlink(),
        "has none of spiece.model, sentencepiece.model and tokenizer.json",
    ),
    "start is the end": (config(decoder_start_token_id=2), "decoder_start_token_id must not be that of the end token"),
    "start beyond": (config(decoder_start_token_id=9999), "config.json: decoder_start_token_id must be 0 to "),
    "no end": (config(eos_token_id=50), "eos_token_id must be the id of a control piece of spiece.model, got 50"),
    "few rows": (config(vocab_size=9), "vocab_size must be the number of pieces of spiece.model (4"),
    "buckets": (config(relative_attention_num_buckets=30), "relative_attention_num_buckets must be a multiple of 4"),
    "two sources": (config(task_specific_params=MIXED), "must translate from one language, translates from de, en"),
    "a long prefix": (
        config(task_specific_params={"translation_en_to_de": {"prefix": "zoology quixotic examples "}}),
        "must be 1 to 16 known pieces",
    ),
}


def test_a_damaged_table_of_characters_is_one_line(tmp_path: Path) -> None:
    """sentencepiece, not protobuf, finds that the characters that it replaces are nonsense."""
    path = save_t5(tmp_path / "t5", "t5") / "spiece.model"
    model = ModelProto.FromString(path.read_bytes())
    model.normalizer_spec.precompiled_charsmap = b"nonsense"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(LingonError, match="not a sentencepiece model"):
        pipeline.read_source(path.parent, PAIR, silent)


@pytest.mark.parametrize("name", WRONG)
def test_files_that_contradict_each_other_are_one_line(
    changed: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = WRONG[name]
    change(changed)
    with pytest.raises(SourceModelError) as caught:
        pipeline.read_source(changed, PAIR, silent)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, LingonError)
    options = ["--languages", "en:de", "--gate-source", str(DATA / "tatoeba.en")]
    assert main(["import", str(changed), str(tmp_path / "models" / "x"), *options]) == 1
    assert not (tmp_path / "models").exists()


def test_a_report_names_the_languages(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(many), "--report", "--languages", "en:de"]) == 0
    assert "Hugging Face T5: en to de (gates: en to de)" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["madlad", "t5"])
def test_one_verified_bundle_serves_two_target_languages(tmp_path: Path, kind: str) -> None:
    source = save_t5(tmp_path / kind, kind, seed=2, ends=ENDS.get(kind, 2.5))
    imported = pipeline.read_source(source, ImportSettings(languages=(["en"], ["de", "fr"])), silent)
    pipeline.check_imported(imported, source, TEXTS[:5], ImportSettings(compare=True, least_log_prob=-9), silent)
    settings = ExportSettings(precisions=("fp32",), shortlist=None, parity_sentences=5, gate_sentences=5)
    texts = ExportTexts([Pair(text, "") for text in TEXTS[:10]])
    bundle = pipeline.export_imported(imported, tmp_path / "models" / "many", texts, settings, silent)
    assert bundle.manifest.precisions["fp32"].gate == "passed"
    with LocalTranslator(bundle.folder, device="cpu") as translator:
        replies = [
            translator.translate(
                pb.TranslateRequest(texts=TEXTS[:5], source_language_code="en", target_language_code=target)
            )
            for target in ("de", "fr")
        ]
    assert [reply.target_language_code for reply in replies] == ["de", "fr"]
    german, french = ([each.hypotheses[0].text for each in reply.results] for reply in replies)
    assert german != french
