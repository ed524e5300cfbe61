"""A model of Marian becomes the same model in Lingon: its own files, computed by a transcription in NumPy."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from lingon.bundle.store import Bundle
from lingon.errors import SourceModelError
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.serving.in_process import LocalTranslator
from lingon.text import EOS, FORBIDDEN, normalise
from lingon.training.corpus import Pair
from lingon.training.search import SearchSettings, translate
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import lines, normal_pieces, silent, train_pieces
from tests.support.marian_models import (
    BOTH_NORMS,
    PRE_NORM,
    STUDENT,
    TARGET_TIED,
    Marian,
    MarianForm,
    binary,
    quantised,
    save_npz,
    save_student,
    scale_in_8_bits,
    written,
)

TEXTS = [normalise(text) for text in lines("en")[:40]]
SETTINGS = ImportSettings(languages=(["en"], ["de"]))
FORMS: dict[str, dict[str, Any]] = {
    "post-norm": {"seed": 4, "ends": 3.0, "transformer-ffn-activation": "swish"},
    "pre-norm": {"seed": 1, "ends": 2.0, **PRE_NORM},
    "pre-norm without a final one": {"seed": 17, "ends": 1.0, **PRE_NORM, "transformer-postprocess-top": ""},
    "both norms": {"seed": 1, "ends": 3.0, **BOTH_NORMS},
    "student": {"seed": 10, "ends": 2.0, **STUDENT},
    "pre-norm student": {"seed": 2, "ends": 4.0, **STUDENT, **PRE_NORM},
    "separate": {"seed": 5, "ends": 2.0, **TARGET_TIED},
}


def dictionary(pieces: list[str]) -> str:
    """Return a vocabulary as Marian writes it: quoted where YAML asks for it, and a long key on a line of its own."""
    written = [f"{json.dumps(piece, ensure_ascii=False)}: {number}" for number, piece in enumerate(pieces)]
    written[2] = f"{pieces[2]}: 2"
    written[3] = f"? {json.dumps(pieces[3], ensure_ascii=False)}\n: 3"
    return "\n".join(written) + "\n"


def save_opus(folder: Path, **changed: Any) -> Marian:
    """Save a model as OPUS-MT publishes it: dictionaries in YAML beside the sentencepiece models of both sides."""
    folder.mkdir(parents=True)
    segmenters = {side: train_pieces(lines(language), 300) for side, language in (("source", "en"), ("target", "de"))}
    for side, content in segmenters.items():
        (folder / f"{side}.spm").write_bytes(content)
    separate = not changed.get("tied-embeddings-all", True)
    pieces = [sorted(normal_pieces(content)) for content in segmenters.values()]
    pieces = pieces if separate else [sorted({*pieces[0], *pieces[1]})] * 2
    vocabularies = [["</s>", "<unk>", *each] for each in pieces]
    names = ["x.src.vocab.yml", "x.trg.vocab.yml"] if separate else ["x.vocab.yml"] * 2
    for name, vocabulary in zip(names, vocabularies, strict=True):
        (folder / name).write_text(dictionary(vocabulary), encoding="utf-8")
    (folder / "decoder.yml").write_text(
        f"models:\n  - /elsewhere/x.npz\nvocabs:\n  - {names[0]}\n  - {names[1]}\nbeam-size: 6\nnormalize: 1\n"
    )
    model = Marian.random((len(vocabularies[0]), len(vocabularies[1])), **changed)
    save_npz(folder / "x.npz", model)
    return model


@pytest.fixture(scope="module", params=FORMS)
def opus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Marian, Imported]:
    folder = tmp_path_factory.mktemp("marian") / request.param
    model = save_opus(folder, **FORMS[request.param])
    return model, pipeline.read_source(folder, SETTINGS, silent)


def rows_of(imported: Imported, ids: list[int]) -> list[int]:
    return [imported.source.source.rows[each] for each in ids]


def test_logits_are_those_of_the_transcription(opus: tuple[Marian, Imported]) -> None:
    model, imported = opus
    # In 32 bits, the attention of a random model without norms of the keys makes rounding large.
    wide = Marian(model.options, {name: tensor.astype(np.float64) for name, tensor in model.tensors.items()})
    computed = copy.deepcopy(imported.checkpoint.model).double()
    said = [new for new in range(4, len(imported.source.target.rows)) if new not in imported.source.target.never]
    rows = [imported.source.target.rows[each] for each in said]
    for text in TEXTS[:10]:
        ids = imported.checkpoint.tokenizer.encode_source(text)
        given = said[: len(ids)]
        mine = computed(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([[1, *given]]))
        expected = wide.logits(rows_of(imported, ids), [imported.source.target.rows[each] for each in given])
        np.testing.assert_allclose(mine[0, :, said].detach().numpy(), expected[:, rows], rtol=1e-4, atol=1e-4)


def test_greedy_tokens_are_those_of_the_transcription(opus: tuple[Marian, Imported]) -> None:
    model, imported = opus
    target, tokenizer = imported.source.target, imported.checkpoint.tokenizer
    sources = [tokenizer.encode_source(text) for text in TEXTS]
    found = translate(imported.checkpoint.model, sources, settings := SearchSettings())
    silent_rows = sorted({target.rows[each] for each in (*FORBIDDEN, *target.never)} - {len(target.rows)})
    never = [row for row in silent_rows if row < len(model.tensors["decoder_ff_logit_out_b"][0])]
    outputs = []
    for source, (best, *_) in zip(sources, found, strict=True):
        most = settings.max_length(len(source), imported.checkpoint.model.settings.max_positions)
        expected = model.greedy(rows_of(imported, source), never, eos=0, most=most)
        assert [target.rows[each] for each in best.tokens] == expected
        outputs.append(best)
    assert len({best.tokens for best in outputs}) >= 10  # otherwise equal tokens would say nothing
    assert sum(best.finished for best in outputs) >= 10


def test_the_search_and_the_alignment_are_those_of_the_files(tmp_path: Path) -> None:
    save_opus(tmp_path / "opus", **FORMS["post-norm"], **{"guided-alignment": "x.align"})
    facts = pipeline.read_source(tmp_path / "opus", SETTINGS, silent).source.facts
    assert (facts.beam_size, facts.length_penalty, facts.alignment) == (6, 1.0, (1, (0,)))
    assert {path.name for path in facts.files} == {"x.npz", "x.vocab.yml", "source.spm", "target.spm", "decoder.yml"}


@pytest.fixture(scope="module", params=["plain", "compressed", "another number of the type"])
def student(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Marian, Imported]:
    folder = tmp_path_factory.mktemp("student") / "files"
    kind = 0x10001 if request.param.startswith("another") else 0x4101
    model = save_student(folder, compress=request.param == "compressed", kind=kind)
    return model, pipeline.read_source(folder, ImportSettings(), silent)  # its name says the languages


def test_a_student_computes_what_its_integers_stand_for(student: tuple[Marian, Imported]) -> None:
    model, imported = student
    assert (imported.checkpoint.config.data.source_language, imported.checkpoint.config.data.target_language) == (
        "en",
        "de",
    )
    ids = imported.checkpoint.tokenizer.encode_source(TEXTS[0])
    mine = imported.checkpoint.model(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([[1, 7, 9, 8]]))
    rows = imported.source.target.rows
    expected = model.logits(rows_of(imported, ids), [rows[each] for each in (7, 9, 8)])
    said = [new for new in range(4, len(rows)) if new not in imported.source.target.never]
    np.testing.assert_allclose(
        mine[0, :, said].detach().numpy(), expected[:, [rows[each] for each in said]], rtol=1e-3, atol=1e-4
    )


def test_ranges_are_those_of_the_activation_scales(student: tuple[Marian, Imported]) -> None:
    ranges = student[1].source.ranges
    assert ranges is not None
    linear = {
        name for name, module in student[1].checkpoint.model.named_modules() if isinstance(module, torch.nn.Linear)
    }
    assert set(ranges) == {*linear, "memory"}
    assert ranges["encoder.0.attention.qkv"] == pytest.approx((-127 / 24, 127 / 24))
    assert ranges["encoder.1.feed_forward.outer"] == pytest.approx((0, 127 / 18))  # what a ReLU writes
    assert ranges["output"] == pytest.approx((-127 / 40, 127 / 40))


OUTPUT_SCALES: dict[str, tuple[bool, dict[str, float | None], float]] = {
    "of the table alone": (False, {"Wemb": 40.0}, 40.0),
    "without a name alone": (False, {"none": 40.0}, 40.0),
    "of the table before the other": (False, {"none": 30.0, "Wemb": 40.0}, 40.0),
    "empty": (False, {"none": 40.0, "Wemb": None}, 40.0),
    "in 8 bits, of the target table": (True, {"decoder_Wemb": 40.0}, 40.0),
    "of the target table before the other": (True, {"none": 30.0, "decoder_Wemb": 40.0}, 40.0),
}


def save_with_output_scales(folder: Path, scales: dict[str, float | None], *, two: bool) -> Path:
    """Save a student with these scales of the output; that of decoder_Wemb is an 8-bit scalar, None is an empty one."""
    form = MarianForm(STUDENT | TARGET_TIED if two else STUDENT, two=two)
    model, files = written(form, folder / "float32")
    plain = {name: 24.0 for name in model.tensors if name[-2:-1] == "W" or name.endswith(("_W", "_Wf"))}
    found, integers = quantised(model, plain | {name: scale for name, scale in scales.items() if scale is not None})
    for name, scale in scales.items():
        if scale is None:
            found.tensors[f"{name}_QuantMultA"] = np.zeros((0, 1), np.float32)
            if name == "Wemb":
                integers["Wemb_QuantMultA"] = (np.zeros((0, 1), np.int8), 1.0)
        elif name == "decoder_Wemb":
            integers["decoder_Wemb_QuantMultA"] = scale_in_8_bits(scale)
    files.model.write_bytes(binary(found, integers))
    return files.folder


@pytest.mark.parametrize("name", OUTPUT_SCALES)
def test_the_scale_of_the_output_is_the_first_that_the_engine_reads(tmp_path: Path, name: str) -> None:
    two, scales, expected = OUTPUT_SCALES[name]
    source = pipeline.read_source(save_with_output_scales(tmp_path, scales, two=two), SETTINGS, silent).source
    assert source.ranges is not None
    assert source.ranges["output"] == pytest.approx((-127 / expected, 127 / expected))
    assert not source.notes


@pytest.mark.parametrize("scales", [{}, {"none": None}], ids=["none", "an empty one"])
def test_without_a_scale_of_the_output_a_note_says_so(tmp_path: Path, scales: dict[str, float | None]) -> None:
    source = pipeline.read_source(save_with_output_scales(tmp_path, scales, two=False), SETTINGS, silent).source
    assert source.ranges is None
    (note,) = source.notes
    assert note == (
        "has no scale for the output (none_QuantMultA, Wemb_QuantMultA, decoder_Wemb_QuantMultA): int8 has ranges that "
        "are measured on text"
    )


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_scale_must_be_above_0(tmp_path: Path, scale: float) -> None:
    folder = save_with_output_scales(tmp_path, {"Wemb": scale}, two=False)
    with pytest.raises(SourceModelError, match=r"Wemb_QuantMultA must be one number above 0, is \["):
        pipeline.read_source(folder, SETTINGS, silent)


def test_the_shortlist_is_that_of_the_file(student: tuple[Marian, Imported]) -> None:
    source, shortlist = student[1].source, student[1].source.shortlist
    assert shortlist is not None
    rows, count = source.target.rows, len(source.source.pieces) - 2
    ids = student[1].checkpoint.tokenizer.encode_source(TEXTS[3])
    wanted = set(range(50)) | {row for each in ids for row in (rows[each], *_list(rows[each], count))}
    silent_rows = {1, *(rows[each] for each in source.target.never)}
    assert {rows[each] for each in shortlist.select(ids)} == wanted - silent_rows
    assert EOS in shortlist.always


@pytest.mark.parametrize("choice", ["none", "learn"])
def test_its_own_shortlist_is_left_out_for_none_or_another(student: tuple[Marian, Imported], choice: str) -> None:
    settings = ImportSettings(languages=(["en"], ["de"]), shortlist=choice)
    assert pipeline.read_source(student[1].checkpoint.folder, settings, silent).source.shortlist is None


def test_a_trimmed_shortlist_has_the_kept_pieces(student: tuple[Marian, Imported], tmp_path: Path) -> None:
    (tmp_path / "text.en").write_text("\n".join(TEXTS[:3]), encoding="utf-8")
    whole = student[1].source
    trimmed = pipeline.trim_imported(student[1], [tmp_path / "text.en"], silent)
    assert whole.shortlist is not None
    assert trimmed.source.shortlist is not None
    assert len(trimmed.source.target.pieces) < len(whole.target.pieces)
    kept = set(trimmed.source.target.rows)
    for text in TEXTS[:3]:
        before, after = (
            {each.source.target.rows[piece] for piece in each.source.shortlist.select(ids)}
            for each in (student[1], trimmed)
            if each.source.shortlist is not None
            for ids in [each.checkpoint.tokenizer.encode_source(text)]
        )
        assert after == before & kept


def _list(row: int, count: int) -> list[int]:
    return [(row * 7 + step) % count for step in range(20)]


def exported(imported: Imported, folder: Path, log: list[str], precisions: str = "fp32,int8") -> Bundle:
    settings = ExportSettings(
        precisions=tuple(precisions.split(",")), shortlist_by_default=True, parity_sentences=5, gate_sentences=30
    )
    texts = ExportTexts([Pair(text, "") for text in TEXTS[:30]])
    return pipeline.export_imported(imported, folder, texts, settings, log.append)


def test_a_bundle_of_a_student_has_its_ranges_and_its_shortlist(tmp_path: Path) -> None:
    save_student(tmp_path / "files", seed=4, ends=0.0, listed=300)
    imported = pipeline.read_source(tmp_path / "files", ImportSettings(), silent)
    log: list[str] = []
    bundle = exported(imported, tmp_path / "models" / "en-de", log)
    assert bundle.manifest.precisions.keys() == {"fp32", "int8"}
    assert bundle.manifest.defaults.shortlist
    graph = onnx.load(bundle.folder / "int8" / "decoder.onnx", load_external_data=False)
    arrays = [onnx.numpy_helper.to_array(each) for each in graph.graph.initializer if not each.external_data]
    steps = [float(each) for each in arrays if each.shape == () and each.dtype == np.float32]
    wanted = imported.source.ranges or {}
    for name in ("decoder.0.attention.gates", "decoder.1.feed_forward.outer", "output"):
        assert any(step == pytest.approx(wanted[name].step, rel=1e-6) for step in steps), name
    with LocalTranslator(bundle.folder, device="cpu", precision="int8") as translator:
        asked = [
            pb.TranslateRequest(texts=TEXTS[:5], options=pb.DecodingOptions(shortlist=each)) for each in (False, True)
        ]
        plain, listed = (translator.translate(each) for each in asked)
    assert [each.hypotheses[0].text for each in plain.results] == [each.hypotheses[0].text for each in listed.results]
    assert [each.shortlist for each in (*plain.results[:1], *listed.results[:1])] == [False, True]


def test_a_shortlist_that_costs_quality_is_left_out(tmp_path: Path) -> None:
    save_student(tmp_path / "files", seed=4, ends=0.0, listed=1)
    imported, log = pipeline.read_source(tmp_path / "files", ImportSettings(), silent), list[str]()
    bundle = exported(imported, tmp_path / "models" / "en-de", log, "fp32")
    assert bundle.manifest.shortlist is None
    assert any(
        line.startswith("fp32 with shortlist: ") and line.endswith("the bundle has no shortlist") for line in log
    )
