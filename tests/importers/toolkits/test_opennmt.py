"""A model of OpenNMT gives what CTranslate2 gives for it, in every format, asked as its own users ask it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

from lingon import AttentionSelection, Model
from lingon.cli.main import main
from lingon.errors import SettingsError, SourceModelError
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings, compare_with_toolkits
from lingon.text import BOS, EOS
from lingon.training.models.interface import AttentionModel
from lingon.training.search import SearchSettings, translate
from tests.support.ctranslate2_models import (
    ANSWERS,
    FORMS,
    HEADS,
    SEARCHES,
    SIDES,
    SPECIAL,
    SavedForm,
    ctranslate2_answers,
    joint_pieces,
    pieces_of,
    save_opennmt,
    texts,
    variables,
)
from tests.support.foreign_models import silent
from tests.support.transformers_kept import write_rows

SETTINGS = ImportSettings(languages=(["ru"], ["en"]))
KEPT: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
SAME_SCORE = 1e-4
EQUAL = [search for search in SEARCHES if search != "beam 4"]
"""The searches that find the same best translation of every text."""
forms = pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
Answers = dict[str, list[list[tuple[str, float]]]]


def kept(form: SavedForm) -> Answers:
    """Return what CTranslate2 answered for a form; 16-bit floats hold the weights exactly."""
    found: Answers = KEPT["answers"]["float32" if form.kind == "float16" else form.kind]
    return found


def ours(imported: Imported) -> Answers:
    tokenizer, found = imported.checkpoint.tokenizer, Answers()
    sources = [tokenizer.encode_source(text) for text in texts()]
    for name, options in SEARCHES.items():
        count = options.get("num_hypotheses", 1)
        settings = SearchSettings(beam_size=options["beam_size"], num_hypotheses=count, length_penalty=1.0)
        results = translate(imported.checkpoint.model, sources, settings)
        found[name] = [[(tokenizer.decode(each.tokens), each.score) for each in one] for one in results]
    return found


def equal(search: str, first: list[list[tuple[str, float]]], second: list[list[tuple[str, float]]]) -> int:
    """Return the number of texts with the same best translation; of the same score, if the search is for scores."""
    pairs = [(one[0], other[0]) for one, other in zip(first, second, strict=True)]
    scored = search.endswith("scores")
    return sum(one[0] == other[0] and (not scored or abs(one[1] - other[1]) < SAME_SCORE) for one, other in pairs)


@pytest.fixture(scope="module")
def table() -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    yield rows
    write_rows("ctranslate2", rows)


@forms
def test_translations_and_scores_are_those_of_ctranslate2(
    tmp_path: Path, form: SavedForm, table: list[dict[str, Any]]
) -> None:
    imported = pipeline.read_source(save_opennmt(tmp_path / "files", form), SETTINGS, silent)
    assert not imported.checkpoint.tokenizer.source_end
    found = ours(imported)
    for search, expected in kept(form).items():
        same, count = equal(search, found[search], expected), len(expected)
        row = {"family": "CTranslate2", "form": f"OpenNMT-tf, {form.name}", "search": search}
        table.append({**row, "reference_engine": KEPT["reference_engine"], "equal": same, "of": count})
        # By default CTranslate2 ends when four translations have ended, Lingon when no better one can end.
        assert same >= (0.95 * count if search == "beam 4" else count)
    assert len({each[0][0] for each in found["greedy"]}) > 100


def test_all_hypotheses_and_their_scores_are_those_of_ctranslate2(tmp_path: Path) -> None:
    """But for a few of the last ranks, which the two searches end at other steps."""
    imported = pipeline.read_source(save_opennmt(tmp_path / "files", FORMS[-4]), SETTINGS, silent)
    search = "beam 4, patience 2, scores"
    found, expected = ours(imported)[search], kept(FORMS[-4])[search]
    for mine, theirs in zip(found, expected, strict=True):
        assert len(mine) == len(theirs) == 4
        scores = dict(theirs)
        assert all(abs(score - scores[text]) < SAME_SCORE for text, score in mine if text in scores)
    texts_of = ([[text for text, _ in each] for each in side] for side in (found, expected))
    same = sum(one == other for one, other in zip(*texts_of, strict=True))
    assert same >= 100


def test_attention_is_that_of_ctranslate2(tmp_path: Path) -> None:
    checkpoint = pipeline.read_source(save_opennmt(tmp_path / "files", FORMS[0]), SETTINGS, silent).checkpoint
    assert isinstance(checkpoint.model, AttentionModel)
    for text, expected in zip(texts(), KEPT["attention"], strict=False):
        ids = checkpoint.tokenizer.encode_source(text)
        (best,) = translate(checkpoint.model, [ids], SearchSettings())[0]
        target = torch.tensor([[BOS, *best.tokens]])[:, : len(expected)]
        with torch.inference_mode():
            weights = checkpoint.model.attention(torch.tensor([ids]), torch.tensor([len(ids)]), target)
        assert np.allclose(weights[0, -1, 0].numpy(), np.array(expected), atol=1e-5)


@pytest.mark.peer
@forms
def test_the_kept_answers_are_those_of_the_toolkit(tmp_path: Path, form: SavedForm) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    found = ctranslate2_answers(save_opennmt(tmp_path / "files", form))
    for search, expected in kept(form).items():
        assert equal(search, found[search], expected) == len(expected)


@pytest.mark.peer
@pytest.mark.parametrize("kind", [None, "float16", "bfloat16", "int16", "int8", "int8_float16"])
def test_what_its_own_writer_saves_is_the_model(tmp_path: Path, kind: str | None) -> None:
    specs = pytest.importorskip("ctranslate2.specs", reason="ctranslate2 is not installed")
    spec = specs.TransformerSpec.from_config((2, 2), HEADS)
    for name, value in variables().items():
        *path, last = name.replace("embeddings_0", "embeddings" if "encoder" in name else "").split("/")
        part = spec
        for each in path:
            stem, _, number = each.rpartition("_")
            is_list = number.isdigit() and hasattr(part, stem) and isinstance(getattr(part, stem), list)
            part = getattr(part, stem)[int(number)] if is_list else getattr(part, each)
        part = part[0] if isinstance(part, list) else part
        if value.ndim:
            setattr(part, last, value)
    folder = save_opennmt(tmp_path / "files", FORMS[-4])
    for side in SIDES:
        vocabulary = json.loads((folder / f"{side}_vocabulary.json").read_text(encoding="utf-8"))
        getattr(spec, f"register_{side}_vocabulary")(vocabulary)
    spec.validate()
    spec.optimize(quantization=kind)
    for path in (*folder.glob("*.json"), folder / "model.bin"):
        path.unlink()
    spec.save(str(folder))
    found, expected = ours(pipeline.read_source(folder, SETTINGS, silent)), ctranslate2_answers(folder)
    for search in EQUAL:
        assert equal(search, found[search], expected[search]) == len(texts())


@pytest.mark.peer
def test_the_comparison_of_an_import_asks_with_pieces_alone(tmp_path: Path) -> None:
    """A bundle that ends its sources with a token, which the model never read, is found out."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    folder = save_opennmt(tmp_path / "files", FORMS[0])
    imported = pipeline.read_source(folder, SETTINGS, silent)
    sources = texts()[:40]
    for line in compare_with_toolkits(imported.checkpoint, imported.source, folder, sources, wanted=True):
        assert line.endswith("tokens of 40 of 40 texts are the same"), line


SAID = {
    "OpenNMT": ({}, None, False),
    "the caller knows better": ({}, True, True),
    "Marian": ({"add_source_eos": True}, None, True),
    "Transformers": ({"decoder_start_token": None, "bos_token": "<s>"}, None, True),
}


@pytest.mark.parametrize("name", SAID)
def test_the_files_or_the_user_say_whether_a_source_ends_with_a_token(tmp_path: Path, name: str) -> None:
    values, given, expected = SAID[name]
    folder = save_opennmt(tmp_path / "files", FORMS[-4], config=values)
    if values.get("decoder_start_token", "") is None:
        path = folder / "target_vocabulary.json"
        pieces = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps([*pieces[:-3], "de_DE", "en_XX", "<unk>"]), encoding="utf-8")
    settings = ImportSettings(languages=SETTINGS.languages, source_end=given)
    tokenizer = pipeline.read_source(folder, settings, silent).checkpoint.tokenizer
    assert (tokenizer.encode_source("абк")[-1] == EOS) == expected


def test_files_that_do_not_say_it_are_one_line(tmp_path: Path) -> None:
    folder = save_opennmt(tmp_path / "files", FORMS[-4])
    for side in ("source", "target"):
        path = folder / f"{side}_vocabulary.json"
        path.write_text(path.read_text(encoding="utf-8").replace("<blank>", "<pad>"), encoding="utf-8")
    with pytest.raises(SourceModelError, match=r"</s>: give --source-end") as e:
        pipeline.read_source(folder, SETTINGS, silent)
    assert len(str(e.value).splitlines()) == 1
    for given in (True, False):
        settings = ImportSettings(languages=SETTINGS.languages, source_end=given)
        assert pipeline.read_source(folder, settings, silent).checkpoint.tokenizer.source_end == given
    contradicting = save_opennmt(tmp_path / "contradicting", FORMS[-4], config={"add_source_eos": True})
    with pytest.raises(SettingsError, match=r"add_source_eos is true, .*--no-source-end"):
        pipeline.read_source(contradicting, ImportSettings(source_end=False), silent)


def save_argos(folder: Path, **metadata: str) -> Path:
    """Save a package of Argos Translate; metadata: fields of its file that differ."""
    inside = folder / "translate-ru_en-1_0"
    save_opennmt(inside / "model", FORMS[0])
    (inside / "sentencepiece.model").write_bytes(joint_pieces(inside / "model"))
    for name in SIDES.values():
        (inside / "model" / name).unlink()
    values = {"package_version": "1.0", "argos_version": "1.0", "from_code": "ru", "to_code": "en", **metadata}
    (inside / "metadata.json").write_text(json.dumps(values), encoding="utf-8")
    with zipfile.ZipFile(folder / "ru_en.argosmodel", "w") as archive:
        for path in sorted(inside.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return inside


def test_a_package_of_argos_translate_is_read_with_its_languages_and_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = save_argos(tmp_path, from_code="pb")
    assert main(["import", str(tmp_path / "ru_en.argosmodel"), "--report"]) == 0
    assert "Argos Translate: pt-BR to en, " in capsys.readouterr().err
    imported = pipeline.read_source(inside, ImportSettings(), silent)
    facts = imported.source.facts
    assert (facts.languages, facts.beam_size, facts.length_penalty) == (("pt-BR", "en"), 4, 0.2)
    assert not imported.checkpoint.tokenizer.source_end
    found = ours(imported)
    assert all(equal(search, found[search], kept(FORMS[0])[search]) == len(texts()) for search in EQUAL)


MERGES = ["l o", "w e", "lo w</w>", "n e", "e r</w>", "lo we", "k n", "i n", "in g</w>", "x </w>"]
ENGLISH = [
    "It\u2019s a well-known \u201cfact\u201d: x & y.",
    "low lower, knowing slower",
    "slow-er being (x)!",
    "  lo  we ",
]


def cut_by_argos(text: str) -> list[str]:
    """Return the pieces that Argos Translate gives CTranslate2: Moses tokens, cut as subword-nmt cuts them."""
    tokens = MosesTokenizer("en").tokenize(MosesPunctNormalizer("en").normalize(text))
    ranks = {tuple(merge.split(" ")): rank for rank, merge in reversed(list(enumerate(MERGES)))}
    found = []
    for token in tokens:
        parts = [*token[:-1], f"{token[-1]}</w>"]
        while pairs := [pair for pair in pairwise(parts) if pair in ranks]:
            best, joined = min(pairs, key=ranks.__getitem__), list[str]()
            while parts:
                both = len(parts) > 1 and tuple(parts[:2]) == best
                joined.append("".join(parts[: 1 + both]))
                del parts[: 1 + both]
            parts = joined
        found += [part.removesuffix("</w>") if part.endswith("</w>") else f"{part}@@" for part in parts]
    return found


def save_argos_with_merges(folder: Path) -> Path:
    """Save a package with bpe.model. Its vocabularies have most pieces of ENGLISH."""
    inside = save_argos(folder, from_code="en", to_code="ru")
    (inside / "sentencepiece.model").unlink()
    (inside / "bpe.model").write_text("\n".join(["#version: 0.2", *MERGES]) + "\n", encoding="utf-8")
    pieces = sorted({piece for text in ENGLISH for piece in cut_by_argos(text)})[:-1]
    for side in ("source", "target"):
        path = next((inside / "model").glob(f"{side}_vocabulary.*"))
        size = len(path.read_text(encoding="utf-8").split("\n")) - 1
        filled = [*SPECIAL, *pieces, *(f"filler{number}@@" for number in range(size))][: size - 1]
        path.write_text("".join(f"{piece}\n" for piece in (*filled, "<unk>")), encoding="utf-8")
    return inside


def test_a_package_with_merges_cuts_texts_as_argos_translate_does(tmp_path: Path) -> None:
    imported = pipeline.read_source(save_argos_with_merges(tmp_path), ImportSettings(), silent)
    tokenizer, source = imported.checkpoint.tokenizer, imported.source
    assert {path.name for path in source.facts.files} >= {"metadata.json", "bpe.model", "model.bin"}
    known = set(source.source.written)
    assert any(piece.endswith("@@") for piece in known)
    unknown, pieces = 0, 0
    for text in ENGLISH:
        expected = [piece if piece in known else "<unk>" for piece in cut_by_argos(text)]
        unknown, pieces = unknown + expected.count("<unk>"), pieces + len(expected)
        assert [source.source.written[each] for each in tokenizer.encode_source(text)] == expected
    assert 1 <= unknown < pieces / 2
    rows = {piece: number for number, piece in enumerate(source.target.written)}
    whole = [["low"], ["lowe@@", "r"], ["kn@@", "ing"], ["&@@", "a@@", "m@@", "p@@", ";"]]
    told = [word for word in whole if all(piece in rows for piece in word)]
    assert len(told) >= 1
    words = ["".join(word).replace("@@", "") for word in told]
    ids = [rows[piece] for word in told for piece in word]
    assert tokenizer.decode(ids) == MosesDetokenizer("ru").detokenize(words)


def test_a_target_prefix_begins_every_translation(tmp_path: Path) -> None:
    inside = save_argos(tmp_path, target_prefix="__en__")
    path = next((inside / "model").glob("target_vocabulary.*"))
    pieces = path.read_text(encoding="utf-8").split("\n")
    pieces[-3] = "__en__"  # before <unk>
    path.write_text("\n".join(pieces), encoding="utf-8")
    imported = pipeline.read_source(inside, ImportSettings(), silent)
    languages = imported.source.languages
    assert languages is not None
    assert [(each.language, each.forced) for each in languages.targets] == [("en", ("__en__",))]
    forced = imported.checkpoint.tokenizer.languages.forced
    assert [imported.source.target.pieces[each] for each in forced] == ["__en__"]


def without_pieces(inside: Path) -> None:
    (inside / "sentencepiece.model").rename(inside / "unknown.model")


@pytest.mark.parametrize(
    ("metadata", "change", "message"),
    [
        ({"type": "sbd"}, None, "metadata.json: type must be 'translate', got \"sbd\""),
        ({"target_prefix": "__de__"}, None, "metadata.json: target_prefix must be a piece of the target"),
        ({}, without_pieces, "has neither sentencepiece.model nor bpe.model"),
    ],
)
def test_other_packages_are_one_line(
    tmp_path: Path, metadata: dict[str, str], change: Callable[[Path], None] | None, message: str
) -> None:
    inside = save_argos(tmp_path, **metadata)
    if change is not None:
        change(inside)
    with pytest.raises(SourceModelError) as caught:
        pipeline.read_source(inside, ImportSettings(), silent)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_served_bundle_gives_what_ctranslate2_gives(tmp_path: Path) -> None:
    folder = save_opennmt(tmp_path / "files", FORMS[0])
    (tmp_path / "words").write_text("".join(f"{text}\n" for text in texts()), encoding="utf-8")
    arguments = ["--languages", "ru:en", "--gate-source", tmp_path / "words", "--precision", "fp32", "--no-compare"]
    pieces = ["--source-pieces", folder / "source.spm", "--target-pieces", folder / "target.spm"]
    assert main([*map(str, ["import", folder, tmp_path / "models" / "words", *arguments, *pieces])]) == 0
    expected = kept(FORMS[0])
    with Model(tmp_path / "models" / "words") as model:
        for search in EQUAL:
            options = {"beam_size": SEARCHES[search]["beam_size"], "length_penalty": 1.0, "guard": "off"}
            results = model.translate(texts(), **options)
            assert equal(search, [[(each.text, each.score)] for each in results], expected[search]) == len(texts())
        text, (best, score) = texts()[0], expected["greedy, scores"][0][0]
        (scored,) = model.score([(text, best)], attention=AttentionSelection(kinds=["cross"]))
        assert [piece.piece for piece in scored.source_pieces] == pieces_of([text], folder)[0]
        assert scored.log_prob / len(scored.tokens) == pytest.approx(score, abs=SAME_SCORE)
        last = next(each for each in scored.attention if (each.layer, each.head) == (1, 0))
        theirs = np.array(KEPT["attention"][0])
        assert np.allclose(np.array(last.weights)[: len(theirs)], theirs, atol=1e-4)
