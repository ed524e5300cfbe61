"""Checkpoints of OpenNMT-py and folders of Eole give what these toolkits give for them, and run no code."""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lingon import Model
from lingon.cli.main import main
from lingon.errors import SettingsError, SourceModelError
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings, compare_with_toolkits
from lingon.text import BOS, EOS, normalise
from lingon.training.search import SearchSettings, translate
from tests.support.ctranslate2_models import pieces_of, texts
from tests.support.foreign_models import lines, silent
from tests.support.opennmt_checkpoints import (
    CHECKPOINT,
    FORMS,
    MOST,
    SEARCHES,
    TEXTS,
    TOOLKITS,
    Answers,
    PyForm,
    answers,
    form,
    installed,
    kept,
    options,
    save_checkpoint,
    save_eole,
    save_opennmt_py,
    sources,
)
from tests.support.tokenizers import END, learn_merges, slow_pieces
from tests.support.tokenizers import pieces_of as subwords

RUSSIAN_ENGLISH = ImportSettings(languages=(["ru"], ["en"]))
SAME_SCORE = 1e-4
EVERY = [(toolkit, form) for toolkit, forms in TOOLKITS.items() for form in forms]
every = pytest.mark.parametrize(("toolkit", "form"), EVERY, ids=[f"{toolkit}-{form.name}" for toolkit, form in EVERY])


def ours(imported: Imported) -> Answers:
    """Return the translations of an imported model by the searches of the kept answers."""
    tokenizer, found = imported.checkpoint.tokenizer, Answers()
    encoded = [tokenizer.encode_source(text) for text in texts()[:TEXTS]]
    for name, beam_size in SEARCHES.items():
        settings = SearchSettings(beam_size=beam_size, length_factor=0, length_extra=MOST)
        results = translate(imported.checkpoint.model, encoded, settings)
        found[name] = [(" ".join(tokenizer.target_pieces(best.tokens)), best.score) for best, *_ in results]
    return found


def equal(first: Answers, second: Answers) -> int:
    """Return the number of texts with the same translation and score."""
    pairs = [pair for name in SEARCHES for pair in zip(first[name], second[name], strict=True)]
    return sum(one[0] == other[0] and abs(one[1] - other[1]) < SAME_SCORE for one, other in pairs)


@every
def test_translations_and_scores_are_those_of_the_toolkit(tmp_path: Path, toolkit: str, form: PyForm) -> None:
    imported = pipeline.read_source(save_checkpoint(tmp_path / "files", toolkit, form), RUSSIAN_ENGLISH, silent)
    assert imported.source.facts.toolkit == toolkit.removesuffix(" 2").removesuffix(" 3")
    found, expected = ours(imported), kept()[toolkit]["answers"][form.name]
    assert equal(found, expected) == len(SEARCHES) * TEXTS
    assert len({text for text, _ in expected["greedy"]}) > 1


@pytest.mark.peer
@every
def test_the_kept_answers_are_those_of_the_toolkit(toolkit: str, form: PyForm) -> None:
    if toolkit not in installed():
        pytest.skip(f"{toolkit} is not installed")
    _, ask = installed()[toolkit]
    found = answers(toolkit, form, ask)
    assert equal(found, kept()[toolkit]["answers"][form.name]) == len(SEARCHES) * TEXTS


@pytest.mark.peer
@pytest.mark.parametrize("form", FORMS, ids=[each.name for each in FORMS])
def test_an_import_compares_with_ctranslate2_what_it_computes(tmp_path: Path, form: PyForm) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    folder = save_opennmt_py(tmp_path / "files", form)
    imported = pipeline.read_source(folder, RUSSIAN_ENGLISH, silent)
    first, *_ = compare_with_toolkits(imported.checkpoint, imported.source, folder, texts()[:40], wanted=True)
    if form.options.get("position_encoding", True):
        assert first == "CTranslate2: beam size 1, length penalty 0: tokens of 40 of 40 texts are the same"
    else:
        assert first == "not compared with CTranslate2, which does not compute such a model of OpenNMT-py"


def test_a_source_ends_without_a_token_and_has_the_ids_of_the_checkpoint(tmp_path: Path) -> None:
    folder = save_opennmt_py(tmp_path / "files", form("version 3"))
    imported = pipeline.read_source(folder, RUSSIAN_ENGLISH, silent)
    tokenizer, numbering = imported.checkpoint.tokenizer, imported.source.source
    vocabulary = torch.load(folder / CHECKPOINT, weights_only=False)["vocab"]["src"]
    for text, pieces in zip(texts(), pieces_of(texts(), folder), strict=True):
        ids = tokenizer.encode_source(text)
        assert [vocabulary[numbering.rows[each]] for each in ids] == [
            piece if piece in vocabulary else "<unk>" for piece in pieces
        ]
    assert EOS not in tokenizer.encode_source(texts()[0])


@pytest.mark.parametrize("name", ["version 3", "safetensors", "Eole"])
def test_what_was_read_is_in_the_facts(tmp_path: Path, name: str) -> None:
    is_eole = name == "Eole"
    folder = (save_eole if is_eole else save_opennmt_py)(tmp_path / "files", form("version 3" if is_eole else name))
    (folder / "notes.txt").write_text("nothing of the model")
    facts = pipeline.read_source(folder, RUSSIAN_ENGLISH, silent).source.facts
    assert {path.name for path in facts.files} == {path.name for path in folder.iterdir()} - {"notes.txt"}
    assert (facts.beam_size, facts.length_penalty, facts.longest) == (5, 1, 512)


def test_the_attention_that_was_trained_for_alignments_gives_them(tmp_path: Path) -> None:
    changed = {"lambda_align": 0.05, "alignment_layer": -2, "alignment_heads": 1}
    folder = save_opennmt_py(tmp_path / "files", form("version 3"), **changed)
    assert pipeline.read_source(folder, RUSSIAN_ENGLISH, silent).source.facts.alignment == (0, (0,))


def test_the_decoder_may_start_with_the_end_token(tmp_path: Path) -> None:
    folder = save_opennmt_py(tmp_path / "files", form("version 3"))
    edit(lambda held: held["vocab"].update(decoder_start_token="</s>"))(folder)
    numbering = pipeline.read_source(folder, RUSSIAN_ENGLISH, silent).source.target
    assert numbering.rows[BOS] == numbering.rows[EOS]


def test_pyonmttok_that_leaves_all_to_sentencepiece_is_read(tmp_path: Path) -> None:
    plain = {"src_onmttok_kwargs": "{'mode': 'none'}", "tgt_onmttok_kwargs": "{'mode': 'none'}"}
    folder = save_opennmt_py(tmp_path / "files", form("version 3"), transforms=["onmt_tokenize"], **plain)
    assert pipeline.read_source(folder, RUSSIAN_ENGLISH, silent).source.facts.toolkit == "OpenNMT-py"


def test_pieces_that_the_user_names_are_read(tmp_path: Path) -> None:
    folder = save_opennmt_py(tmp_path / "files", form("version 3"), src_subword_model="", tgt_subword_model="")
    for side in ("source", "target"):
        (folder / f"{side}.spm").rename(tmp_path / f"other.{side}")
    with pytest.raises(SourceModelError, match=r"has no sentencepiece model \(.*source\.spm.*--source-pieces FILE"):
        pipeline.read_source(folder, RUSSIAN_ENGLISH, silent)
    given = replace(RUSSIAN_ENGLISH, pieces=(tmp_path / "other.source", tmp_path / "other.target"))
    found = ours(pipeline.read_source(folder, given, silent))
    assert equal(found, kept()["OpenNMT-py 3"]["answers"]["version 3"]) == len(SEARCHES) * TEXTS


def with_marks(piece: str) -> str:
    """Return a piece as subword-nmt writes it."""
    return piece.removesuffix(END) if piece.endswith(END) else f"{piece}@@"


def test_tokens_of_moses_are_cut_by_the_merges_of_subword_nmt(tmp_path: Path) -> None:
    """A vocabulary of pieces with @@ is one of words that merges cut, as Moses tokenizes them."""
    sacremoses = pytest.importorskip("sacremoses", reason="sacremoses is not installed")
    moses = sacremoses.MosesTokenizer(lang="en")
    english = [normalise(text) for text in lines("en")[:60]]
    tokens = Counter(token for text in english for token in moses.tokenize(text, aggressive_dash_splits=True))
    merges = learn_merges(tokens, 100)
    named = ["<unk>", "<blank>", "<s>", "</s>", *sorted({with_marks(each) for each in subwords(tokens, merges)})]
    folder = save_opennmt_py(
        tmp_path / "files", form("shared tables"), src_subword_model="/data/codes", tgt_subword_model=""
    )
    (folder / "codes").write_text("#version: 0.2\n" + "".join(f"{one} {other}\n" for one, other in merges))
    (folder / "target.bpe").write_bytes((folder / "codes").read_bytes())

    def with_merges(held: dict[str, Any]) -> None:
        random = torch.Generator().manual_seed(5)
        table = torch.randn(len(named), held["model"][TABLE].size(1), generator=random)
        held["vocab"] |= {"src": named, "tgt": named}
        held["model"] |= {TABLE: table, TABLE.replace("encoder", "decoder"): table}
        held["generator"] = {"weight": table, "bias": torch.zeros(len(named))}

    edit(with_merges)(folder)
    with pytest.raises(SourceModelError, match="Moses has rules for each language"):
        pipeline.read_source(folder, ImportSettings(), silent)
    imported = pipeline.read_source(folder, ImportSettings(languages=(["en"], ["de"])), silent)
    tokenizer, rows = imported.checkpoint.tokenizer, imported.source.source.rows
    for text in english:
        pieces = [
            with_marks(piece)
            for token in moses.tokenize(text, aggressive_dash_splits=True)
            for piece in slow_pieces(token, merges)
        ]
        assert [named[rows[each]] for each in tokenizer.encode_source(text)] == pieces


# What is refused.


class Code:
    """What a pickle can run when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("opened"),)


@pytest.mark.parametrize("version", ["version 2", "version 3"])
def test_a_checkpoint_that_would_run_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    folder = save_opennmt_py(tmp_path / "files", form(version), optim=Code())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        SourceModelError, match=r"not a file of tensors, options and vocabularies alone \(__builtin__\.getattr\)$"
    ):
        pipeline.read_source(folder, RUSSIAN_ENGLISH, silent)
    assert not (tmp_path / "opened").exists()


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Return what changes a checkpoint of version 3."""

    def apply(folder: Path) -> None:
        held = torch.load(folder / CHECKPOINT, weights_only=False)
        change(held)
        torch.save(held, folder / CHECKPOINT)

    return apply


def option(**values: Any) -> Callable[[Path], None]:
    return edit(lambda held: vars(held["opt"]).update(values))


def tensor(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    return edit(lambda held: held["model"].update({name: change(held["model"][name])}))


TABLE = "encoder.embeddings.make_embedding.emb_luts.0.weight"
SINUSOIDS = "encoder.embeddings.make_embedding.pe.pe"
WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "two checkpoints": (
        lambda folder: shutil.copy(folder / CHECKPOINT, folder / "other.pt"),
        "must have one checkpoint, has model_step_10.pt, other.pt",
    ),
    "no checkpoint": (lambda folder: (folder / CHECKPOINT).write_bytes(b"no"), "not a file of tensors, options"),
    "another pickle": (
        lambda folder: torch.save({"weight": torch.ones(1)}, folder / CHECKPOINT),
        "is no checkpoint of OpenNMT-py: it must have opt and vocab",
    ),
    "options that are none": (edit(lambda held: held.update(opt={})), "it must have opt and vocab"),
    "no tensors": (edit(lambda held: held.pop("model")), "has no tensors, and no file of safetensors beside it"),
    "a tensor that is none": (edit(lambda held: held["model"].update(x=1)), "'x' is no tensor with a name"),
    "a language model": (option(model_task="lm"), 'model_task must be seq2seq, got "lm"'),
    "an encoder of another kind": (option(encoder_type="brnn"), 'encoder_type must be transformer, got "brnn"'),
    "average attention": (option(self_attn_type="average"), "self_attn_type must be scaled-dot or scaled-dot-flash"),
    "a copy": (option(copy_attn=True), "copy_attn must be false, got true"),
    "experts": (option(num_experts=4), "num_experts must be 0, got 4"),
    "a window": (option(sliding_window=16), "sliding_window must be 0, got 16"),
    "parallel layers": (option(parallel_residual=True), "parallel_residual must be false, got true"),
    "heads": (option(heads=3), "heads must divide half of the width (32), got 3"),
    "heads of text": (option(heads="4"), 'heads must be 1 to 1,048,576, got "4"'),
    "heads of keys": (option(num_kv=3), "num_kv must be 0 or divide the heads (4), got 3"),
    "an activation": (option(pos_ffn_activation_fn="mish"), "pos_ffn_activation_fn must be relu or gelu or silu"),
    "a norm": (option(layer_norm="group"), "layer_norm must be standard or rms"),
    "an epsilon": (option(norm_eps=1), "norm_eps must be 1e-12 to 0.1, got 1"),
    "relative positions": (option(max_relative_positions=20), "max_relative_positions must be 0, or -1 for rotary"),
    "ALiBi": (option(max_relative_positions=-2), "max_relative_positions must be 0, or -1 for rotary"),
    "two kinds of positions": (
        option(max_relative_positions=-1),
        "position_encoding must be false beside max_relative_positions, got true",
    ),
    "another base": (
        option(max_relative_positions=-1, position_encoding=False, rotary_theta=500),
        "rotary_theta must be 10000, without a scaling_type, got 500",
    ),
    "a part of a head": (
        option(max_relative_positions=-1, position_encoding=False, rotary_dim=4),
        "rotary_dim must be 0 or the width of a head (8), got 4",
    ),
    "narrow heads": (
        option(max_relative_positions=-1, position_encoding=False, heads=8),
        "heads must give heads of a multiple of 8 dimensions with rotary positions, got 8",
    ),
    "buckets": (
        option(max_relative_positions=9, relative_positions_buckets=18, position_encoding=False),
        "relative_positions_buckets must be a multiple of 4 and less than twice max_relative_positions (9), got 18",
    ),
    "other sinusoids": (tensor(SINUSOIDS, lambda table: table + 1), "pe.pe must be sinusoids, differs from them by 1"),
    "one layer more": (option(enc_layers=3), "has no tensor encoder.transformer.2.self_attn.linear_query.weight"),
    "one layer less": (option(dec_layers=1), "has tensors that this form of model does not use: decoder.transformer"),
    "a row less": (tensor(TABLE, lambda table: table[1:]), f"{TABLE} must have shape (30, 32), has (29, 32)"),
    "a table of numbers": (
        tensor(TABLE, lambda table: table[0]),
        f"{TABLE} must be a table of an even number of columns",
    ),
    "a word feature": (
        edit(lambda held: held["model"].update({TABLE.replace(".0.", ".1."): torch.ones(4, 4)})),
        "has tensors that this form of model does not use: encoder.embeddings.make_embedding.emb_luts.1.weight",
    ),
    "a prefix of the texts": (option(transforms=["sentencepiece", "prefix"]), "its texts had the transform prefix"),
    "a prefix of a corpus": (option(data={"a": {"transforms": ["suffix"]}}), "its texts had the transform suffix"),
    "a tokenizer of its own": (
        option(transforms=["onmt_tokenize"], src_onmttok_kwargs="{'mode': 'aggressive'}", tgt_onmttok_kwargs="{}"),
        "src_onmttok_kwargs must have the mode none, which leaves all to the sentencepiece model",
    ),
    "a vocabulary that is none": (edit(lambda held: held["vocab"].update(src={})), "must be a list of pieces, or one"),
    "a vocabulary of numbers": (edit(lambda held: held["vocab"].update(src=[1, 2])), "must be a list of pieces"),
    "a piece twice": (edit(lambda held: held["vocab"]["tgt"].append("<s>")), "a vocabulary has the piece '<s>' twice"),
    "no unknown piece": (edit(lambda held: held["vocab"]["src"].remove("<unk>")), "a vocabulary has no piece <unk>"),
    "no such start": (edit(lambda held: held["vocab"].update(decoder_start_token="<x>")), "has no piece <x>"),
    "joiners": (
        edit(lambda held: held["vocab"].update(tgt=["<unk>", "<blank>", "<s>", "</s>", "a\uffed"])),
        "they have the joiners (\uffed) of pyonmttok",
    ),
    "codes of NLLB": (
        edit(lambda held: held["vocab"]["src"].extend(f"a{each}a_Latn" for each in "bcdefghijklmnopqrstuvwxyz")),
        "has the language codes of NLLB-200; import the files of Transformers",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_checkpoint_that_is_not_read_is_one_line(tmp_path: Path, name: str) -> None:
    damage, message = WRONG[name]
    folder = save_opennmt_py(tmp_path / "files", form("version 3"))
    damage(folder)
    with pytest.raises(SourceModelError) as caught:
        pipeline.read_source(folder, RUSSIAN_ENGLISH, silent)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_layers_with_other_biases_of_distances_are_refused(tmp_path: Path) -> None:
    folder = save_opennmt_py(tmp_path / "files", form("relative buckets"))
    tensor("encoder.transformer.1.self_attn.relative_attention_bias.weight", lambda table: table + 1)(folder)
    with pytest.raises(SourceModelError, match="layers of the encoder must share one relative_attention_bias"):
        pipeline.read_source(folder, RUSSIAN_ENGLISH, silent)


def edit_file(folder: Path, name: str, **values: Any) -> None:
    found = json.loads((folder / name).read_text(encoding="utf-8"))
    (folder / name).write_text(json.dumps({**found, **values}), encoding="utf-8")


def edit_scalar(folder: Path) -> None:
    tensors = load_file(folder / "model.00.safetensors")
    tensors["decoder.transformer_layers.0.layer_scalar"] += 1
    save_file(tensors, folder / "model.00.safetensors")


WRONG_EOLE: dict[str, tuple[dict[str, Any], Callable[[Path], object], str]] = {
    "no model": ({}, lambda folder: edit_file(folder, "config.json", model=3), "model must have the options of"),
    "positions": (
        {"position_encoding_type": "Alibi"},
        silent_folder := (lambda folder: None),
        "must be Rotary or none",
    ),
    "experts": ({"num_experts": 2}, silent_folder, "num_experts must be 0, got 2"),
    "a norm after the layers": ({"encoder_layer_style": "postnorm"}, silent_folder, "must be standard"),
    "wide heads": ({"head_dim": 16}, silent_folder, "head_dim must be the width divided by the heads (8), got 16"),
    "a scalar": ({}, edit_scalar, "decoder.transformer_layers.0.layer_scalar must be 1"),
    "no pieces": ({}, lambda folder: edit_file(folder, "vocab.json", src=None), "must be a list of pieces"),
    "the same tensor twice": (
        {},
        lambda folder: shutil.copy(folder / "model.00.safetensors", folder / "model.01.safetensors"),
        "model.01.safetensors: has the tensor",
    ),
}


@pytest.mark.parametrize("name", WRONG_EOLE)
def test_a_folder_of_eole_that_is_not_read_is_one_line(tmp_path: Path, name: str) -> None:
    changed, damage, message = WRONG_EOLE[name]
    folder = save_eole(tmp_path / "files", form("version 3"), **changed)
    damage(folder)
    with pytest.raises(SourceModelError) as caught:
        pipeline.read_source(folder, RUSSIAN_ENGLISH, silent)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_options_of_other_forms_are_refused(tmp_path: Path) -> None:
    folder = save_opennmt_py(tmp_path / "files", form("version 3"))
    settings = replace(RUSSIAN_ENGLISH, source_end=True)
    with pytest.raises(SettingsError, match="--source-end and --no-source-end are for folders of CTranslate2 alone"):
        pipeline.read_source(folder, settings, silent)


def test_the_fixture_has_the_options_that_the_toolkit_writes() -> None:
    """Version 2 has no options for what it always computes."""
    assert isinstance(options(form("version 2")), argparse.Namespace)
    assert not hasattr(options(form("version 2")), "layer_norm")


# From a checkpoint to a bundle.


@pytest.mark.parametrize("name", ["version 3", "rotary, gated", "rotary halves, grouped heads", "relative buckets"])
def test_a_served_bundle_gives_what_the_toolkit_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = save_opennmt_py(tmp_path / "files", form(name))
    (tmp_path / "words").write_text("".join(f"{text}\n" for text in texts()), encoding="utf-8")
    arguments = ["--languages", "ru:en", "--gate-source", tmp_path / "words", "--precision", "fp32", "--no-compare"]
    assert main([*map(str, ["import", folder, tmp_path / "models" / "words", *arguments])]) == 0
    assert "OpenNMT-py: ru to en, " in capsys.readouterr().err
    expected = kept()["OpenNMT-py 3"]["answers"][name]["greedy"]
    with Model(tmp_path / "models" / "words") as model:
        results = model.translate(sources(folder), beam_size=1, length_penalty=0, guard="off", format="pieces")
    compared = [
        ((result.text, pytest.approx(result.score, abs=SAME_SCORE)), (text, score))
        for result, (text, score) in zip(results, expected, strict=True)
        if len(text.split()) < MOST - 8  # the length of other translations has another bound here
    ]
    assert len(compared) > 5
    assert all(mine == theirs for mine, theirs in compared)
