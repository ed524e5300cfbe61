"""A MarianMTModel becomes the same model in Lingon: ids, logits, tokens, and the bundle that serves it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.errors import LingonError, ParityError, SourceModelError
from lingon.importers import pipeline
from lingon.importers.files.tensors import PICKLED, SAFETENSORS
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits import transformers as toolkit
from lingon.text import normalise
from lingon.training.checkpoint import load_checkpoint, save_checkpoint
from lingon.training.models.layers import sinusoids
from tests.support.foreign_models import (
    check_logits,
    check_varied,
    config,
    edit_json,
    lines,
    save_opus_mt,
    silent,
    tensors,
)

TEXTS = [normalise(text) for text in lines("en")[:40]]
SEEDS = {"joint": {"seed": 6, "ends": 2.4}, "separate": {"seed": 7, "ends": 3.2, "separate": True}}
HOSTILE = ["", " ", "☃", "日本語", "a\u0300", "<<fra>> Tom", "▁Tom", "x" * 300, "Tom\u200b\u200b"]


@pytest.fixture(scope="module", params=SEEDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    values: dict[str, Any] = SEEDS[request.param]
    return save_opus_mt(tmp_path_factory.mktemp("opus") / request.param, codes=[">>fra<<"], **values)


@pytest.fixture(scope="module")
def imported(folder: Path) -> Imported:
    return pipeline.read_source(folder, ImportSettings(), silent)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opus_mt(tmp_path_factory.mktemp("one") / "opus", seed=6)


@pytest.fixture
def changed(one: Path, tmp_path: Path) -> Path:
    """A copy of the files, which a test may change."""
    return Path(shutil.copytree(one, tmp_path / "opus"))


def test_the_zoo_has_outputs_that_differ_and_end(imported: Imported) -> None:
    check_varied(imported, TEXTS)


def test_ids_and_tokens_are_those_of_transformers(folder: Path, imported: Imported) -> None:
    expected = [
        "Transformers: ids of 40 texts are the same",
        *(
            f"Transformers: beam size {beam_size}, length penalty {penalty:g}: tokens of 40 of 40 texts are the same"
            for beam_size, penalty in toolkit.SEARCHES
        ),
    ]
    assert toolkit.compare(imported.checkpoint, imported.source, folder, TEXTS) == expected


def test_logits_are_those_of_transformers(folder: Path, imported: Imported) -> None:
    check_logits(imported, folder, TEXTS[:10], 1e-5)


def test_every_text_is_cut_as_transformers_cuts_it(folder: Path, imported: Imported) -> None:
    """The segmenter has a piece that the dictionary lacks, which is unknown; a code in a text stays text."""
    theirs, tokenizer, rows = toolkit.TransformersToolkit(folder), imported.checkpoint.tokenizer, imported.source.source
    for text in [*lines("en"), *map(normalise, HOSTILE)]:
        assert [rows.rows[each] for each in tokenizer.encode_source(text)] == theirs.encode(text), text
    codes = {number for number, piece in enumerate(rows.pieces) if piece == ">>fra<<"}
    assert codes
    never = {rows.pieces[each] for each in imported.source.target.never}
    assert never == {"▁Tom", ">>fra<<"}, "an alias and a code"
    assert not codes.intersection(tokenizer.encode_source(">>fra<< Tom"))
    assert "Tom" in tokenizer.decode(tokenizer.encode_target(normalise("Tom schläft.")))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_sinusoids_may_be_saved_in_16_bits(changed: Path, kind: torch.dtype) -> None:
    tables = {f"model.{side}.embed_positions.weight": sinusoids(128, 32, "halves") for side in ("encoder", "decoder")}
    tensors(lambda found: found.update({name: table.to(kind) for name, table in tables.items()}))(changed)
    assert pipeline.read_source(changed, ImportSettings(), silent).source.settings.positions == "sinusoidal"


def test_an_output_matrix_of_its_own_is_read(changed: Path) -> None:
    """Two matrices that differ without a tie are both used; Transformers agrees."""
    edit_json(changed / "config.json", tie_word_embeddings=False, scale_embedding=False)
    tensors = load_file(changed / SAFETENSORS)
    shared = tensors["model.shared.weight"]
    save_file(tensors | {"lm_head.weight": shared + 0.1 * torch.randn_like(shared)}, changed / SAFETENSORS)
    found = pipeline.read_source(changed, ImportSettings(), silent)
    assert found.source.settings.tie == "none"
    assert toolkit.compare(found.checkpoint, found.source, changed, TEXTS[:5])[1].endswith("5 of 5 texts are the same")


def test_a_tie_that_lies_is_named_and_the_embedding_is_used(one: Path, changed: Path) -> None:
    tensors = load_file(changed / SAFETENSORS)
    save_file(tensors | {"lm_head.weight": tensors["model.shared.weight"] + 1}, changed / SAFETENSORS)
    log: list[str] = []
    found = pipeline.read_source(changed, ImportSettings(), log.append)
    assert "note: lm_head.weight differs from the table that it is tied to, and is not used" in log
    expected = pipeline.read_source(one, ImportSettings(), silent).checkpoint.model
    assert torch.equal(found.checkpoint.model.output.weight, expected.output.weight)


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


LAYER = "model.decoder.layers.1.fc1"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0f1e\nsize 298763941\n"
WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (removed("config.json"), "has no config.json"),
    "another type": (
        config(model_type="bert"),
        "config.json: model_type must be marian or fsmt or m2m_100 or mbart or t5 or mt5 or IndicTrans or t5gemma, got "
        "'bert'",
    ),
    "no size": (config(d_model=None), "config.json: has no d_model"),
    "a size of text": (config(d_model="x"), 'config.json: d_model must be 2 to 1,048,576, got "x"'),
    "an absurd size": (config(encoder_ffn_dim=2**40), "encoder_ffn_dim must be 1 to 1,048,576, got 1099511627776"),
    "a size beyond memory": (
        config(d_model=2**19),
        "its settings are those of 2,199,571,660,800 weights or more, its files",
    ),
    "layers that the files lack": (config(decoder_layers=900), "weights or more, its files have "),
    "odd heads": (config(encoder_attention_heads=3, decoder_attention_heads=3), "d_model must be even and a multiple"),
    "two widths": (config(decoder_ffn_dim=8), "decoder_ffn_dim must be that of the encoder (64), got 8"),
    "an activation": (
        config(activation_function="mish"),
        'or gelu or gelu_new, got "mish"',
    ),
    "vocabulary size": (config(vocab_size=99), "vocab_size must be the number of pieces of vocab.json"),
    "end id": (config(eos_token_id=7), "eos_token_id must be the id of </s> in vocab.json (0), got 7"),
    "start id": (
        config(decoder_start_token_id=0),
        "must be an id of vocab.json, but not of </s> or <unk>",
    ),
    "json": (written("config.json", b"{"), "config.json: not JSON"),
    "no object": (written("config.json", b"[]"), "config.json: must be a JSON object, is a list"),
    "no vocabulary": (removed("vocab.json"), "vocab.json: No such file"),
    "a hole": (written("vocab.json", b'{"</s>": 0, "<unk>": 2}'), "vocab.json: the id of '<unk>' must be 0 to 1, is 2"),
    "an id twice": (written("vocab.json", b'{"</s>": 0, "<unk>": 0}'), "'<unk>' and '</s>' both have the id 0"),
    "no padding": (written("vocab.json", b'{"</s>": 0, "<unk>": 1}'), "vocab.json: has no piece <pad>"),
    "no target vocabulary": (
        config(share_encoder_decoder_embeddings=False),
        "separate_vocabs must be true, as config.json has two tables of pieces",
    ),
    "an adapter": (
        written("adapter_config.json", b'{"base_model_name_or_path": "opus-mt-en-de"}'),
        "is an adapter of PEFT, such as LoRA; merge it into opus-mt-en-de first: merge_and_unload() of PEFT, then",
    ),
    "pieces": (written("source.spm", b"nothing"), "source.spm: not a sentencepiece model"),
    "a piece": (
        written("source.spm", ModelProto(pieces=[{"piece": "a"}]).SerializeToString().replace(b"a", b"\xff")),
        "source.spm: not a sentencepiece model (piece 0 is not UTF-8)",
    ),
    "a pointer": (
        written(SAFETENSORS, POINTER),
        f"{SAFETENSORS}: is a pointer of Git LFS in the place of the file; run",
    ),
    "a pointer to pieces": (written("source.spm", POINTER), "source.spm: is a pointer of Git LFS in the place of"),
    "no pieces": (removed("target.spm"), "target.spm: No such file"),
    "no tensors": (removed(SAFETENSORS), "has neither model.safetensors nor pytorch_model.bin"),
    "other bytes": (written(SAFETENSORS, b"\x10\0\0\0\0\0\0\0{}"), "model.safetensors: not a safetensors file"),
    "a missing tensor": (tensors(lambda found: found.pop(f"{LAYER}.bias")), f"has no tensor {LAYER}.bias"),
    "no bias": (tensors(lambda found: found.pop("final_logits_bias")), "has no tensor final_logits_bias"),
    "one more": (
        tensors(lambda found: found.update({"model.encoder.layer_norm.weight": torch.ones(32)})),
        "has tensors that this form of model does not use: model.encoder.layer_norm.weight",
    ),
    "a shape": (
        tensors(lambda found: found.update({f"{LAYER}.bias": torch.ones(3)})),
        f"{LAYER}.bias must have shape (64,), has (3,)",
    ),
    "integers": (
        tensors(lambda found: found.update({f"{LAYER}.bias": torch.ones(64, dtype=torch.int32)})),
        f"{LAYER}.bias must hold floating-point numbers, holds torch.int32",
    ),
    "not finite": (
        tensors(lambda found: found.update({f"{LAYER}.bias": torch.full((64,), torch.nan)})),
        f"{LAYER}.bias has values that are not finite",
    ),
    "other positions": (
        tensors(lambda found: found.update({"model.encoder.embed_positions.weight": torch.zeros(128, 32)})),
        "model.encoder.embed_positions.weight must be sinusoids, differs from them by up to 1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_contradict_each_other_are_one_line(changed: Path, name: str) -> None:
    change, message = WRONG[name]
    change(changed)
    with pytest.raises(SourceModelError) as caught:
        pipeline.read_source(changed, ImportSettings(), silent)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


class Code:
    """What a pickle can run when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("opened"),)


def test_a_pickle_that_runs_code_is_refused(changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Code()}, changed / PICKLED)
    (changed / SAFETENSORS).unlink()
    with pytest.raises(SourceModelError, match=r"pytorch_model\.bin: not a file of tensors alone"):
        pipeline.read_source(changed, ImportSettings(), silent)
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("place", range(0, 4000, 160))
def test_a_flipped_bit_in_a_header_is_an_error_or_changes_nothing(changed: Path, place: int) -> None:
    content = bytearray((changed / SAFETENSORS).read_bytes())
    content[place] ^= 8
    (changed / SAFETENSORS).write_bytes(content)
    with pytest.raises(LingonError) as caught:
        pipeline.read_source(changed, ImportSettings(), silent)
    assert "\n" not in str(caught.value)


def test_a_model_that_is_read_wrongly_fails_the_gates(one: Path) -> None:
    found = pipeline.read_source(one, ImportSettings(), silent)
    with torch.no_grad():
        found.checkpoint.model.get_parameter("decoder.0.cross.query.bias").add_(3)
    with pytest.raises(ParityError, match=r"beam size 1, length penalty 0: .* has other tokens"):
        pipeline.check_imported(found, one, TEXTS, ImportSettings(compare=True), silent)
    with pytest.raises(ParityError, match=r"log-probability of -\d\.\d+ .* -1 or more"):
        pipeline.check_imported(found, one, TEXTS, ImportSettings(compare=False, least_log_prob=-1.0), silent)


def test_an_imported_checkpoint_is_saved_and_read_back(imported: Imported, tmp_path: Path) -> None:
    loaded = imported.checkpoint
    save_checkpoint(tmp_path / "saved", loaded.config, loaded.tokenizer, loaded.model, loaded.progress)
    again = load_checkpoint(tmp_path / "saved")
    assert again.config == loaded.config
    assert again.tokenizer.files() == loaded.tokenizer.files()
    assert all(torch.equal(one, again.model.get_parameter(name)) for name, one in loaded.model.named_parameters())


def test_texts_that_transformers_has_no_positions_for_are_left_out_of_the_comparison(one: Path) -> None:
    rows = json.loads((one / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
    settings = ImportSettings(longest=2 * rows)
    found = pipeline.read_source(one, settings, silent)
    words = [word for text in TEXTS for word in text.split()]
    lengths = (len(found.checkpoint.tokenizer.encode_source(" ".join(words[:count]))) for count in range(len(words)))
    long = " ".join(words[: next(count for count, length in enumerate(lengths) if length > rows)])
    checks = toolkit.compare(found.checkpoint, found.source, one, [*TEXTS[:3], long])
    assert all("of 3 texts are the same" in line for line in checks[1:]), checks
    assert all(line.endswith("; 1 are left out, which it cannot translate so") for line in checks[1:])
