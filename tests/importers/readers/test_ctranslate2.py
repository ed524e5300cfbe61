"""A folder of CTranslate2 becomes the model that it was converted from; a wrong one is one line."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lingon.errors import SettingsError, SourceModelError
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.readers.ctranslate2 import read_ctranslate2
from lingon.importers.readers.ctranslate2_files import read_variables
from lingon.text import BOS, normalise
from lingon.training.search import SearchSettings, translate
from tests.support.ctranslate2_models import (
    FORMS,
    Array,
    SavedForm,
    content_of,
    save_ctranslate2,
    save_opennmt,
    variables_of,
)
from tests.support.foreign_models import lines, save_multilingual, save_opus_mt, silent, write_published_settings

TEXTS = [normalise(text) for text in lines("en")[:40]]
SETTINGS = ImportSettings(languages=(["en"], ["de"]))
HALF_STEPS = {"float32": 0.0, "float16": 2**-11, "int8": 0.5 / 127, "int16": 0.5 / 1023}
"""The largest error of a value of each type, in parts of the largest value of a matrix."""


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opus_mt(tmp_path_factory.mktemp("opus") / "files", seed=6, ends=2.4)


@pytest.fixture(scope="module")
def original(opus: Path) -> Imported:
    return pipeline.read_source(opus, SETTINGS, silent)


@pytest.mark.parametrize("kind", HALF_STEPS)
def test_the_weights_are_those_of_the_original(tmp_path: Path, opus: Path, original: Imported, kind: str) -> None:
    folder = save_ctranslate2(tmp_path / kind, opus, kind)
    imported = pipeline.read_source(folder, SETTINGS, silent)
    found = dict(imported.checkpoint.model.named_parameters())
    for name, expected in original.checkpoint.model.named_parameters():
        bound = HALF_STEPS[kind] * float(expected.detach().abs().max()) * 1.01
        said = slice(2 if name == "output.bias" else 0, None)  # the bias of what is never generated says nothing
        assert float((found.pop(name) - expected)[said].detach().abs().max()) <= bound, name
    assert not found
    assert any("integers" in note for note in imported.source.notes) == kind.startswith("int")
    facts, first = imported.source.facts, original.source.facts
    assert (facts.alignment, facts.longest) == (first.alignment, first.longest - 1)  # the table has its start token too


def test_ids_and_tokens_are_those_of_the_original(tmp_path: Path, opus: Path, original: Imported) -> None:
    imported = pipeline.read_source(save_ctranslate2(tmp_path / "files", opus), SETTINGS, silent)
    for each in (SearchSettings(), SearchSettings(beam_size=4, length_penalty=1.0)):
        outputs = []
        for model in (original, imported):
            sources = [model.checkpoint.tokenizer.encode_source(text) for text in TEXTS]
            found = translate(model.checkpoint.model, sources, each)
            outputs.append([model.checkpoint.tokenizer.decode(best.tokens) for best, *_ in found])
        assert outputs[0] == outputs[1]
        assert len(set(outputs[0])) >= 10


def test_arrays_that_are_saved_once_because_they_are_equal_are_read(changed: Path, opus: Path) -> None:
    found, aliases, _ = variables_of(opus)
    biases = [name for name in found if name.endswith("ffn/linear_0/bias")]
    first, *others = sorted(biases)  # the decoder's, as CTranslate2 keeps the first name
    for name in others:
        del found[name]
    (changed / "model.bin").write_bytes(content_of(found, aliases | dict.fromkeys(others, first)))
    model = pipeline.read_source(changed, SETTINGS, silent).checkpoint.model
    for name, values in model.named_parameters():
        if name.endswith("feed_forward.inner.bias"):
            assert torch.equal(values, torch.from_numpy(found[first])), name


def test_sentencepiece_models_may_lie_elsewhere(tmp_path: Path, opus: Path, original: Imported) -> None:
    folder = save_ctranslate2(tmp_path / "files", opus)
    for name in ("source.spm", "target.spm"):
        (folder / name).rename(tmp_path / name)
    with pytest.raises(SourceModelError, match=r"has no sentencepiece model .*: name it, as in --source-pieces FILE"):
        pipeline.read_source(folder, SETTINGS, silent)
    pieces = tmp_path / "source.spm", tmp_path / "target.spm"
    named = ImportSettings(languages=(["en"], ["de"]), pieces=pieces)
    found = pipeline.read_source(folder, named, silent).checkpoint.tokenizer
    assert found.files() == original.checkpoint.tokenizer.files()
    with pytest.raises(SettingsError, match=r"--source-pieces and --target-pieces .* CTranslate2"):
        pipeline.read_source(opus, named, silent)


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose decoder reads the code of the target language first, as that of mBART of 25 languages."""
    room = tmp_path_factory.mktemp("coded")
    source = save_opus_mt(room / "files", seed=6)
    folder = save_ctranslate2(room / "ctranslate2", source)
    no_start(folder, source)
    pieces = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    codes = ["de_DE", "en_XX", "fr_XX"]
    (folder / "shared_vocabulary.json").write_text(json.dumps([*pieces[:-3], *codes]), encoding="utf-8")
    return folder


def test_the_decoder_starts_with_the_code_of_the_only_target(coded: Path) -> None:
    outputs = []
    for target, code in (("de", "de_DE"), ("FR", "fr_XX")):
        settings = ImportSettings(languages=(["en"], [target]))
        imported = pipeline.read_source(coded, settings, silent)
        tokenizer, numbering = imported.checkpoint.tokenizer, imported.source.source
        vocabulary = json.loads((coded / "shared_vocabulary.json").read_text(encoding="utf-8"))
        assert vocabulary[numbering.rows[BOS]] == code
        assert tokenizer.languages.forced == ()
        sources = [tokenizer.encode_source(text) for text in TEXTS]
        assert all([numbering.pieces[each] for each in ids[-2:]] == ["</s>", "en_XX"] for ids in sources)
        found = translate(imported.checkpoint.model, sources, SearchSettings())
        outputs.append([best.tokens for best, *_ in found])
    assert outputs[0] != outputs[1]


@pytest.mark.parametrize("languages", [None, (["en"], ["de", "fr"]), (["en"], ["it"]), (["en"], ["all"])])
def test_a_model_that_starts_with_its_target_needs_one(coded: Path, languages: Any) -> None:
    with pytest.raises(
        SettingsError, match=r"so that a bundle has one; name it, as in .*; it has de, en, fr$"
    ) as caught:
        pipeline.read_source(coded, ImportSettings(languages=languages), silent)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("codes", "tags"),
    [
        ([], []),
        (["__a__", "__7__"], []),
        (["de_DE", "en_XX", "fr_XX"], ["de", "en", "fr"]),
        (["__init__", "de_DE", "en_XX", "fr_XX"], ["de", "en", "fr"]),
        (["__de__", "__en__"], ["de", "en"]),
        ([">>deu<<", ">>fra<<"], ["de", "fr"]),
    ],
)
def test_pieces_of_lines_and_marks_alone_are_no_codes(
    tmp_path: Path, opus: Path, codes: list[str], tags: list[str]
) -> None:
    folder = save_ctranslate2(tmp_path / "files", opus)
    pieces = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    more = ["__", "____", "_____", ">><<", ">>__", *codes]
    (folder / "shared_vocabulary.json").write_text(json.dumps([*pieces[: -len(more)], *more]), encoding="utf-8")
    source = read_ctranslate2(folder)
    assert [each.language for each in (source.languages.targets if source.languages else [])] == tags
    reserved = {source.target.pieces[each] for each in source.target.never}
    assert reserved.intersection(more) == {*codes} - {"__7__"}


@pytest.fixture
def changed(tmp_path: Path, opus: Path) -> Path:
    """A folder that a test may change."""
    return save_ctranslate2(tmp_path / "changed", opus)


def config(**values: object) -> Callable[[Path, Path], None]:
    def change(folder: Path, opus: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def variables(**values: Array | None) -> Callable[[Path, Path], None]:
    """Change variables, whose names have two underscores for a slash; None takes one away."""

    def change(folder: Path, opus: Path) -> None:
        found, aliases, _ = variables_of(opus)
        for name, value in values.items():
            found.pop(name.replace("__", "/"), None)
            if value is not None:
                found[name.replace("__", "/")] = value
        (folder / "model.bin").write_bytes(content_of(found, aliases))

    return change


def spec(name: str) -> Callable[[Path, Path], None]:
    def change(folder: Path, opus: Path) -> None:
        (folder / "model.bin").write_bytes(content_of(*variables_of(opus)[:2], name))

    return change


def vocabulary(content: str) -> Callable[[Path, Path], None]:
    return lambda folder, opus: (folder / "shared_vocabulary.json").write_text(content) and None


def no_start(folder: Path, opus: Path) -> None:
    config(decoder_start_token=None)(folder, opus)
    variables(decoder__start_from_zero_embedding=np.array(0, np.int8))(folder, opus)


NUMBER = np.array(1, np.int8)
WRONG: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "decoder only": (spec("TransformerDecoderModelSpec"), "model must be a TransformerSpec, is a TransformerDecoder"),
    "alibi": (variables(decoder__alibi=NUMBER), "decoder/alibi must be 0, is 1"),
    "an unknown number": (variables(decoder__rotary_dim=NUMBER), "has the number decoder/rotary_dim, which Lingon"),
    "activation": (
        variables(encoder__activation=np.array(6, np.int8), decoder__activation=np.array(6, np.int8)),
        "activation must be 0 to 4, is 6",
    ),
    "two activations": (variables(encoder__activation=np.array(0, np.int8)), "activation of encoder and decoder must"),
    "heads": (
        variables(encoder__num_heads=np.array(3, np.int16), decoder__num_heads=np.array(3, np.int16)),
        "the width (32) must be even and a multiple of num_heads (3)",
    ),
    "scale": (
        variables(encoder__scale_embeddings=np.array(3, np.float32), decoder__scale_embeddings=np.array(3, np.float32)),
        "scale_embeddings must be 1 or the square root of 32, is 3",
    ),
    "positions of one side": (
        lambda folder, opus: (
            (folder / "model.bin").write_bytes(
                content_of(
                    variables_of(opus)[0],
                    {name: of for name, of in variables_of(opus)[1].items() if "position" not in name},
                )
            )
            and None
        ),
        "encoder and decoder must both have a table of positions, or none",
    ),
    "relative positions": (
        variables(encoder__layer_0__self_attention__relative_position_keys=np.zeros((3, 8), np.float32)),
        "has encoder/layer_0/self_attention/relative_position_keys; relative positions are not read",
    ),
    "missing": (
        variables(encoder__layer_1__ffn__linear_1__bias=None),
        "has no tensor encoder/layer_1/ffn/linear_1/bias",
    ),
    "one more": (variables(more=np.zeros(3, np.float32)), "has tensors that this form of model does not use: more"),
    "shape": (
        variables(encoder__layer_1__ffn__linear_1__bias=np.zeros(3, np.float32)),
        "encoder/layer_1/ffn/linear_1/bias must have shape (32,), has (3,)",
    ),
    "no scale": (
        variables(decoder__layer_0__ffn__linear_0__weight=np.zeros((64, 32), np.int8)),
        "decoder/layer_0/ffn/linear_0/weight holds integers and has no weight_scale",
    ),
    "end token": (config(eos_token="<end>"), "config.json: eos_token must be a piece of the vocabulary"),
    "start token": (config(add_source_bos=True), "config.json: add_source_bos must be false: Lingon's models read no"),
    "no start": (no_start, "config.json: decoder_start_token must be a piece: the vocabulary has no codes"),
    "epsilon": (config(layer_norm_epsilon=-1), "config.json: layer_norm_epsilon must be 1e-12 to 0.1, got -1"),
    "vocabulary": (vocabulary("{}"), "shared_vocabulary.json: must be a list of pieces"),
    "a piece twice": (vocabulary('["</s>", "<unk>", "a", "a"]'), "shared_vocabulary.json: has the piece 'a' twice"),
    "few pieces": (vocabulary('["</s>", "<unk>", "a"]'), "must have shape (3, 32), has ("),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_contradict_each_other_are_one_line(changed: Path, opus: Path, name: str) -> None:
    change, message = WRONG[name]
    change(changed, opus)
    with pytest.raises(SourceModelError) as caught:
        pipeline.read_source(changed, SETTINGS, silent)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_cut_is_one_line(changed: Path) -> None:
    path = changed / "model.bin"
    content = path.read_bytes()
    for length in [*range(0, 2000, 97), *range(2000, len(content), 9973), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(SourceModelError, match=r"model\.bin: ") as caught:
            read_variables(path)
        assert len(str(caught.value).splitlines()) == 1


def test_absurd_numbers_in_the_head_take_no_memory(changed: Path) -> None:
    path = changed / "model.bin"
    content = path.read_bytes()
    for place in range(0, 120, 4):
        path.write_bytes(content[:place] + struct.pack("<I", 2**32 - 2) + content[place + 4 :])
        with pytest.raises(SourceModelError, match=r"model\.bin: "):
            read_variables(path)


@pytest.mark.parametrize("form", FORMS[::3], ids=[form.name for form in FORMS[::3]])
def test_a_file_of_an_older_format_that_is_cut_is_one_line(tmp_path: Path, form: SavedForm) -> None:
    path = save_opennmt(tmp_path / "files", form) / "model.bin"
    content = path.read_bytes()
    for length in [*range(0, 1000, 97), *range(2000, len(content), 29_973), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(SourceModelError, match=r"model\.bin: ") as caught:
            read_variables(path)
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("form", "place", "value", "message"),
    [
        (FORMS[0], 0, 0, "the version of the format must be 1 to 6, is 0"),
        (FORMS[0], 0, 7, "the version of the format must be 1 to 6, is 7"),
        (FORMS[-1], 4 + 2 + len("TransformerSpec") + 1, 8, "the revision of the model must be 1 to 7, is 8"),
        (FORMS[-1], 4 + 2 + len("TransformerSpec") + 1, 0, "the revision of the model must be 1 to 7, is 0"),
    ],
)
def test_unknown_versions_are_one_line(tmp_path: Path, form: SavedForm, place: int, value: int, message: str) -> None:
    path = save_opennmt(tmp_path / "files", form) / "model.bin"
    content = path.read_bytes()
    path.write_bytes(content[:place] + struct.pack("<I", value) + content[place + 4 :])
    with pytest.raises(SourceModelError, match=message):
        read_variables(path)


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["opus", "m2m_100", "mbart50", "mbart25"])
def test_what_its_converter_writes_is_the_original(tmp_path: Path, opus: Path, kind: str) -> None:
    converters = pytest.importorskip("ctranslate2.converters", reason="ctranslate2 is not installed")
    source = opus if kind == "opus" else save_multilingual(tmp_path / kind, kind, seed=3, ends=3.0)
    if kind.startswith("mbart"):
        write_published_settings(source, kind)
    converters.TransformersConverter(str(source)).convert(str(tmp_path / "converted"))
    for path in source.glob("*.spm" if kind == "opus" else "sentencepiece*"):
        shutil.copy(path, tmp_path / "converted" / path.name)
    first, second = (pipeline.read_source(each, SETTINGS, silent) for each in (source, tmp_path / "converted"))
    sides = []
    for each in (first, second):
        tokenizer, forced = each.checkpoint.tokenizer, each.checkpoint.tokenizer.languages.forced
        sources = [tokenizer.encode_source(text) for text in TEXTS]
        found = translate(each.checkpoint.model, sources, SearchSettings(forced=forced))
        sides.append([tokenizer.decode(best.tokens) for best, *_ in found])
    assert sides[0] == sides[1]
    norms = [dict(each.checkpoint.model.named_parameters()) for each in (first, second)]
    assert torch.equal(*(each["decoder.1.around_feed_forward.norm.weight"] for each in norms))
