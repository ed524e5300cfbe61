"""T5Gemma becomes the same model in Lingon: ids, logits, tokens, and the bundle."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lingon.errors import SettingsError, SourceModelError
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits import transformers as toolkit
from lingon.importers.toolkits.comparison import new_ids
from lingon.serving.in_process import LocalTranslator
from lingon.text import BOS, EOS, normalise
from lingon.training.corpus import Pair
from lingon.training.search import SearchSettings, translate
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import lines, silent, tensors
from tests.support.gemma_models import SIDE, save_t5gemma

TEXTS = [normalise(text) for text in lines("en")[:10]]
PAIR = ImportSettings(languages=(["en"], ["de"]))
SAME_LOGITS = 1e-4
FORMS: dict[str, dict[str, Any]] = {
    "as published": {},
    "without a begin token": {"begins": False},
    "its own output matrix": {"tied": False},
    "a head for each query": {"num_key_value_heads": 4, "query_pre_attn_scalar": 16},
    "no bounds and windows": {
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "layer_types": ["full_attention"] * 3,
    },
}
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_t5gemma(tmp_path_factory.mktemp("zoo") / "t5gemma")


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, PAIR, silent)


@pytest.fixture
def changed(folder: Path, tmp_path: Path) -> Path:
    """A copy of the files, which a test may change."""
    return Path(shutil.copytree(folder, tmp_path / "t5gemma"))


def test_ids_and_tokens_are_those_of_transformers(imported: Imported, folder: Path) -> None:
    sources = [imported.checkpoint.tokenizer.encode_source(text) for text in TEXTS[:6]]
    found = [best for best, *_ in translate(imported.checkpoint.model, sources, SearchSettings())]
    assert len({best.tokens for best in found}) >= 4  # else the equality would say little
    assert any(best.finished for best in found)
    assert min(map(len, sources)) > SIDE["sliding_window"]
    compared = toolkit.compare(imported.checkpoint, imported.source, folder, TEXTS[:6])
    assert compared[0].endswith("ids of 6 texts are the same")
    assert [line.partition("tokens of ")[2][:6] for line in compared[1:]] == ["6 of 6"] * 3


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_logits_are_those_of_transformers(form: dict[str, Any], tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = save_t5gemma(tmp_path / "t5gemma", **form)
    imported = pipeline.read_source(folder, PAIR, silent)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer, rows = AutoTokenizer.from_pretrained(folder), torch.tensor(imported.source.source.rows)
    random, said = torch.Generator().manual_seed(5), [*new_ids(imported.source.target).values()]
    for text in TEXTS[:5]:
        ids = torch.tensor([imported.checkpoint.tokenizer.encode_source(text)])
        assert rows[ids].tolist() == [tokenizer(text).input_ids]
        chosen = torch.randint(len(said), (12,), generator=random).tolist()
        given = torch.tensor([[BOS, *(said[each] for each in chosen)]])
        with torch.inference_mode():
            mine = imported.checkpoint.model(ids, torch.tensor([ids.size(1)]), given)[0]
            mask = torch.ones_like(ids)
            logits = theirs(
                input_ids=rows[ids], attention_mask=mask, decoder_input_ids=rows[given], use_cache=False
            ).logits[0]
        assert float((mine - logits[:, rows]).abs().max()) < SAME_LOGITS


def test_a_begin_token_stands_before_a_text_and_no_end_token_after_it(imported: Imported) -> None:
    ids = imported.checkpoint.tokenizer.encode_source("Tom")
    assert ids[0] == BOS
    assert EOS not in ids
    for text in ("<bos>", "a<eos>b", "<pad>"):
        assert {BOS, EOS, 0}.isdisjoint(imported.checkpoint.tokenizer.encode_source(text)[1:])


def test_a_model_is_exported_and_served(imported: Imported, tmp_path: Path) -> None:
    texts = ExportTexts([Pair(text, "") for text in TEXTS])
    settings = ExportSettings(precisions=("fp32", "int8"), shortlist=None, parity_sentences=5, gate_sentences=5)
    bundle = pipeline.export_imported(imported, tmp_path / "models" / "gemma", texts, settings, silent)
    with LocalTranslator(bundle.folder, device="cpu", precision="fp32") as translator:
        reply = translator.translate(pb.TranslateRequest(texts=TEXTS, options=pb.DecodingOptions(beam_size=1)))
        shown = reply.source_language_code, reply.target_language_code
    assert shown == ("en", "de")
    tokenizer = imported.checkpoint.tokenizer
    found = translate(imported.checkpoint.model, [tokenizer.encode_source(text) for text in TEXTS], SearchSettings())
    ended = [
        (result.hypotheses[0].text, normalise(tokenizer.decode(best.tokens)))
        for result, (best, *_) in zip(reply.results, found, strict=True)
        if best.finished and best.tokens  # a server translates a text again whose translation is empty or has no end
    ]
    assert len(ended) >= 2
    assert [ours for ours, _ in ended] == [expected for _, expected in ended]


@pytest.mark.parametrize("asked", [(["en"], ["de", "fr"]), (["en"], ["all"]), (["en", "fr"], ["de"])])
def test_more_than_a_pair_is_refused(folder: Path, asked: tuple[list[str], list[str]]) -> None:
    with pytest.raises(SettingsError, match=r"--languages must be one pair, such as en:de: .* is a model of one pair"):
        pipeline.read_source(folder, ImportSettings(languages=asked), silent)


def fields(side: str, **values: object) -> Change:
    """A change of the configuration of a side."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config[side] |= values
        path.write_text(json.dumps(config), encoding="utf-8")

    return change


def without_encoder(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"encoder": 3}), encoding="utf-8")


another_tensor = tensors(lambda found: found.update({"model.encoder.extra": torch.zeros(1)}))
SLIDING, FULL = "sliding_attention", "full_attention"
BROKEN = {
    "widths": (fields("decoder", hidden_size=64), r"decoder\.hidden_size must be that of the encoder \(32\)"),
    "bias": (fields("encoder", attention_bias=True), "attention_bias must be false"),
    "rates": (fields("decoder", rope_theta=1e6), "rope_theta must be 10,000"),
    "rates of Transformers 5": (
        fields("encoder", rope_parameters={FULL: {"rope_theta": 1e6}, SLIDING: {"rope_theta": 1e4}}),
        "rope_theta must be 10,000",
    ),
    "order": (
        fields("encoder", layer_types=[FULL, SLIDING, SLIDING]),
        "layer_types must have full_attention at the same",
    ),
    "layers": (
        fields("decoder", layer_types=[FULL]),
        "layer_types must be full_attention or sliding_attention for each",
    ),
    "no heads": (fields("encoder", num_key_value_heads=3), "num_key_value_heads must be that of|num_key_value_heads"),
    "no side": (without_encoder, "encoder must be an object"),
    "no pieces": (lambda folder: (folder / "tokenizer.model").unlink(), r"has neither tokenizer\.model nor"),
    "one more": (another_tensor, "has tensors that this form of model does not use: model.encoder.extra"),
    "rows": (fields("decoder", vocab_size=9), "vocab_size must be that of the encoder"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_files_that_contradict_each_other_are_refused(changed: Path, change: Change, message: str) -> None:
    change(changed)
    with pytest.raises(SourceModelError, match=message):
        pipeline.read_source(changed, PAIR, silent)
