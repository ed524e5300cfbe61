"""Models of the T5 family become the same models in Lingon: ids, logits, tokens, and the bundle that serves them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lingon.errors import SettingsError, SourceModelError
from lingon.export.settings import ExportSettings, Texts
from lingon.importers import pipeline, witness
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.tensors import SAFETENSORS
from lingon.serving.in_process import LocalTranslator
from lingon.text import normalise
from lingon.training.data.corpus import Pair
from lingon.training.search import SearchSettings, translate
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import lines
from tests.support.foreign_t5 import KINDS, save_t5

TEXTS = [normalise(text) for text in lines("en")[:40]]
SETTINGS = ImportSettings(languages=(["en"], ["de"]))


def silent(line: str) -> None:
    """A log that nobody reads."""


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_t5(tmp_path_factory.mktemp("zoo") / request.param, request.param)


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, SETTINGS, silent)


def test_the_zoo_has_outputs_that_differ_and_end(imported: Imported) -> None:
    """Otherwise equal tokens would say nothing: a random model may say one word for ever."""
    sources = [imported.checkpoint.tokenizer.encode_source(text) for text in TEXTS]
    found = translate(imported.checkpoint.model, sources, SearchSettings())
    assert len({best.tokens for best, *_ in found}) >= 10
    assert sum(best.finished for best, *_ in found) >= 10


def test_ids_and_tokens_are_those_of_transformers(folder: Path, imported: Imported) -> None:
    found = witness.compare(imported.checkpoint, imported.source, folder, TEXTS)
    assert found[0] == "Transformers: ids of 40 texts are the same"
    assert [line.partition("tokens of ")[2][:8] for line in found[1:]] == ["40 of 40"] * 3


def test_logits_are_those_of_transformers(folder: Path, imported: Imported) -> None:
    from transformers import AutoModelForSeq2SeqLM

    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    rows = imported.source.target.rows
    generated = sorted(witness._new_ids(imported.source.target).values())
    for text in TEXTS[:5]:
        ids = imported.checkpoint.tokenizer.encode_source(text)
        given = [1, *generated[20 : 60 + len(ids)]]  # farther than the last bucket
        mine = imported.checkpoint.model(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([given]))
        foreign = theirs(
            input_ids=torch.tensor([[rows[each] for each in ids]]),
            decoder_input_ids=torch.tensor([[rows[each] for each in given]]),
        ).logits
        torch.testing.assert_close(
            mine[..., generated], foreign[..., [rows[each] for each in generated]], rtol=1e-4, atol=1e-4
        )


def exported(folder: Path, target: Path, settings: ImportSettings) -> Path:
    imported = pipeline.read_source(folder, settings, silent)
    export = ExportSettings(precisions=("fp32",), shortlist=None, parity_sentences=5, gate_sentences=5)
    return pipeline.export_imported(
        imported, target, Texts([Pair(text, "") for text in TEXTS[:10]]), export, silent
    ).folder


@pytest.mark.parametrize("kind", ["t5", "madlad"])
def test_one_bundle_serves_several_target_languages(tmp_path: Path, kind: str) -> None:
    source = save_t5(tmp_path / kind, kind)
    bundle = exported(source, tmp_path / "models" / "many", ImportSettings(languages=(["en"], ["de", "fr"])))

    def ask(target: str) -> pb.TranslateResponse:
        request = pb.TranslateRequest(texts=TEXTS[:5], source_language_code="en", target_language_code=target)
        request.options.beam_size = 1
        return translator.translate(request)

    with LocalTranslator(bundle, device="cpu") as translator:
        german, french = ([each.hypotheses[0].text for each in ask(target).results] for target in ("de", "fr"))
    assert german != french


def test_a_model_of_one_pair_needs_its_languages(tmp_path: Path) -> None:
    source = save_t5(tmp_path / "t5", "t5-v1.1")
    with pytest.raises(SettingsError, match="its files do not say the two languages"):
        pipeline.read_source(source, ImportSettings(), silent)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_t5(tmp_path_factory.mktemp("one") / "t5", "t5")


@pytest.fixture
def changed(one: Path, tmp_path: Path) -> Path:
    """A copy of the files, which a test may change."""
    return Path(shutil.copytree(one, tmp_path / "t5"))


def config(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        found = load_file(folder / SAFETENSORS)
        change(found)
        save_file({name: tensor.contiguous() for name, tensor in found.items()}, folder / SAFETENSORS)

    return apply


QUERY = "encoder.block.1.layer.0.SelfAttention.q.weight"
WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "activation": (config(feed_forward_proj="gated-tanh"), "config.json: feed_forward_proj must be relu or gelu or"),
    "absurd size": (config(d_ff=2**40), "config.json: d_ff must be 1 to 1,048,576, got 1099511627776"),
    "no size": (config(d_kv=None), "config.json: has no d_kv"),
    "few rows": (config(vocab_size=10), "config.json: vocab_size must be the number of pieces (400) or more, got 10"),
    "start": (config(decoder_start_token_id=9999), "config.json: decoder_start_token_id must be 0 to 403, got 9999"),
    "end": (config(eos_token_id=0), "eos_token_id must not be the id of the padding, of the start or of the unknown"),
    "buckets": (config(relative_attention_num_buckets=6), "relative_attention_num_buckets must be a multiple of 4"),
    "distance": (config(relative_attention_max_distance=3), "relative_attention_max_distance must be 5 to 1,048,576"),
    "prefixes": (config(task_specific_params=[1]), "config.json: task_specific_params must be an object, got [1]"),
    "missing": (tensors(lambda found: found.pop(QUERY)), f"has no tensor {QUERY}"),
    "shape": (tensors(lambda found: found.update({QUERY: torch.zeros(3, 3)})), "must have shape (48, 32), has (3, 3)"),
    "one more": (tensors(lambda found: found.update(more=torch.zeros(3))), "this form of model does not use: more"),
    "no pieces": (lambda folder: (folder / "spiece.model").unlink(), "spiece.model: No such file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_contradict_each_other_are_one_line(changed: Path, name: str) -> None:
    change, message = WRONG[name]
    change(changed)
    with pytest.raises(SourceModelError) as caught:
        pipeline.read_source(changed, SETTINGS, silent)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
