"""A trimmed model keeps the pieces of given texts: on these it cuts and translates as the whole one does."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.bundle.store import open_bundle
from lingon.cli.main import main
from lingon.errors import SettingsError
from lingon.importers import assembly, pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.serving.in_process import LocalTranslator
from lingon.text import UNK, normalise
from lingon.training.checkpoint import Checkpoint
from lingon.training.models.interface import FORBIDDEN_LOGIT
from lingon.training.search import Hypothesis, SearchSettings, translate
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_models import DATA, lines, save_multilingual, save_opus_mt

ONE_PAIR = ImportSettings(languages=(["en"], ["de"]))
TWO_TARGETS = ImportSettings(languages=(["en"], ["de", "fr"]))
KINDS: dict[str, tuple[Callable[[Path], Path], ImportSettings]] = {
    "nllb": (lambda folder: save_multilingual(folder, "nllb", seed=3, ends=3.0), TWO_TARGETS),
    "nllb bpe": (lambda folder: save_multilingual(folder, "nllb", seed=3, ends=3.0, pieces_of="bpe"), TWO_TARGETS),
    "m2m_100": (lambda folder: save_multilingual(folder, "m2m_100", seed=3, ends=3.0), TWO_TARGETS),
    "opus": (lambda folder: save_opus_mt(folder, seed=6), ONE_PAIR),
    "opus separate": (lambda folder: save_opus_mt(folder, seed=9, ends=3.2, separate=True), ONE_PAIR),
}
TEXTS = [normalise(text) for text in lines("en")[:30]]
OTHER = [*lines("en")[200:260], *lines("de")[200:260], "☃ 日本語", "a\u0300", "<mask> deu_Latn", "▁Tom", "x" * 90, "Q"]


@pytest.fixture(scope="module", params=KINDS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    save, settings = KINDS[request.param]
    return pipeline.read_source(save(tmp_path_factory.mktemp("zoo") / "model"), settings, lambda line: None)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """English and German text, whose pieces are not all of those that the models have."""
    folder = tmp_path_factory.mktemp("text")
    for language in ("en", "de"):
        (folder / language).write_text("\n".join(lines(language)[:30]), encoding="utf-8")
    return [folder / "en", folder / "de"]


@pytest.fixture(scope="module")
def trimmed(whole: Imported, files: list[Path]) -> Imported:
    return pipeline.trim_imported(whole, files, lambda line: None)


def greedy(checkpoint: Checkpoint, texts: list[str]) -> list[Hypothesis]:
    tokenizer = checkpoint.tokenizer
    settings = SearchSettings(forced=tokenizer.languages.forced)
    return [best for best, *_ in translate(checkpoint.model, list(map(tokenizer.encode_source, texts)), settings)]


def test_fewer_pieces_are_kept_with_their_rows(whole: Imported, trimmed: Imported) -> None:
    for side in ("source", "target"):
        every, kept = getattr(whole.source, side), getattr(trimmed.source, side)
        assert len(kept.pieces) < 0.9 * len(every.pieces)
        row_of = dict(zip(every.pieces, every.rows, strict=True))
        assert kept.rows == tuple(row_of[piece] for piece in kept.pieces)
        assert [kept.pieces[each] for each in kept.never] == [
            piece for place, piece in enumerate(every.pieces) if place in every.never and piece in kept.pieces
        ]
    tokenizer = trimmed.checkpoint.tokenizer
    assert tokenizer.target_pieces(range(UNK + 1, tokenizer.target_vocab)) == list(
        trimmed.source.target.pieces[UNK + 1 :]
    )
    assert trimmed.checkpoint.model.settings.never_generated == trimmed.source.target.never


def test_the_texts_are_cut_as_before(whole: Imported, trimmed: Imported) -> None:
    before, after = whole.checkpoint.tokenizer, trimmed.checkpoint.tokenizer
    for text in map(normalise, [*lines("en")[:30], *lines("de")[:30]]):
        assert after.source_pieces(after.encode_source(text)) == before.source_pieces(before.encode_source(text))
        assert after.target_pieces(after.encode_target(text)) == before.target_pieces(before.encode_target(text))


def test_greedy_tokens_are_those_of_the_whole_model_without_the_dropped_pieces(
    whole: Imported, trimmed: Imported
) -> None:
    pieces, kept = whole.source.target.pieces, set(trimmed.source.target.pieces[UNK + 1 :])
    model = copy.deepcopy(whole.checkpoint.model)
    dropped = [place for place, piece in enumerate(pieces) if place > UNK and piece not in kept]
    model.forbidden[dropped] = FORBIDDEN_LOGIT
    reference = Checkpoint(**{**fields(whole.checkpoint), "model": model})
    expected, found = greedy(reference, TEXTS), greedy(trimmed.checkpoint, TEXTS)
    names = whole.checkpoint.tokenizer.target_pieces, trimmed.checkpoint.tokenizer.target_pieces
    assert [names[1](each.tokens) for each in found] == [names[0](each.tokens) for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-3)
    without = [names[0](each.tokens) for each in greedy(whole.checkpoint, TEXTS)]
    assert without != [names[0](each.tokens) for each in expected], "some dropped pieces would be generated"


def fields(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__}


def test_any_text_can_still_be_cut(whole: Imported, trimmed: Imported) -> None:
    before, after = whole.checkpoint.tokenizer, trimmed.checkpoint.tokenizer
    for text in map(normalise, OTHER):
        assert after.decode(after.encode_target(text)) == before.decode(before.encode_target(text)), text
        ids = [[each for each in model.encode_source(text) if each == UNK] for model in (before, after)]
        assert len(ids[0]) == len(ids[1]), text


def test_nothing_changes_if_all_pieces_are_kept(
    whole: Imported, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "_kept", lambda model, seen, languages: list(range(len(model.pieces))))
    same = pipeline.trim_imported(whole, files, lambda line: None)
    assert same.checkpoint.config == whole.checkpoint.config
    assert same.checkpoint.tokenizer.files() == whole.checkpoint.tokenizer.files()
    assert (same.source.source, same.source.target) == (whole.source.source, whole.source.target)
    for name, weight in whole.checkpoint.model.named_parameters():
        assert torch.equal(same.checkpoint.model.get_parameter(name), weight), name


def test_codes_of_languages_that_are_not_served_are_dropped(tmp_path: Path, files: list[Path]) -> None:
    whole = pipeline.read_source(save_multilingual(tmp_path / "nllb", "nllb"), TWO_TARGETS, lambda line: None)
    kept = pipeline.trim_imported(whole, files, lambda line: None).source.target.pieces
    assert {"eng_Latn", "deu_Latn", "fra_Latn"} <= set(kept)
    assert not {"zho_Hans", "zho_Hant", "<mask>"} & set(kept)


def test_the_report_says_how_many_tokens_of_every_twentieth_line_the_others_have(
    whole: Imported, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join(["Tom", "\u200b"] * 19 + ["Tom will Mary"]), encoding="utf-8")
    log: list[str] = []
    kept = pipeline.trim_imported(whole, [text], log.append).checkpoint.tokenizer
    tokenizer = whole.checkpoint.tokenizer
    models = list(dict.fromkeys((tokenizer.source, tokenizer.target)))
    shares = [[token in model.encode("Tom") for token in model.encode("Tom will Mary")] for model in models]
    shares = [list(itertools.chain(*shares))] if tokenizer.joint else shares
    sizes = (kept.source_vocab, tokenizer.source_vocab), (kept.target_vocab, tokenizer.target_vocab)
    assert 0 < sum(shares[0]) < len(shares[0])
    for line, known, (left, size) in zip(log, shares, sizes, strict=False):
        assert line.startswith(f"trimmed: {left} of {size} ")
        assert f"the other lines have {sum(known) / len(known):.2%} of {len(known)} tokens of every 20th line" in line
    assert len(log) == len(shares)
    assert kept.source_pieces(kept.encode_source("Mary")) == tokenizer.source_pieces(tokenizer.encode_source("Mary"))


def test_a_trimmed_bundle_is_written_by_the_command_and_served(
    tmp_path: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, models = save_multilingual(tmp_path / "nllb", "nllb", seed=3, ends=3.0), tmp_path / "models" / "nllb"
    gates = ["--gate-source", str(DATA / "tatoeba.en"), "--gate-sentences", "20", "--parity-sentences", "8"]
    rest = ["--languages", "en:de,fr", "--precision", "fp32", "--least-log-prob", "-9"]
    trims = [option for file in files for option in ("--trim", str(file))]
    assert main(["import", str(folder), str(models), *gates, *rest, *trims]) == 0
    shown = capsys.readouterr().err
    assert "tokens of 20 of 20 texts are the same" in shown, "the whole model is compared"
    assert "trimmed: " in shown
    bundle = open_bundle(models)
    assert bundle.manifest.target_vocab < 400
    with LocalTranslator(models, device="cpu", threads=1) as translator:
        for target in ("de", "fr"):
            reply = translator.translate(pb.TranslateRequest(texts=TEXTS[:5], target_language_code=target))
            assert all(result.hypotheses for result in reply.results)


@pytest.mark.parametrize("content", ["", "\n \n\u200b\n"])
def test_files_without_text_are_refused_and_nothing_is_written(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, folder = tmp_path / "empty", save_opus_mt(tmp_path / "opus")
    empty.write_text(content, encoding="utf-8")
    assert main(["import", str(folder), "--checkpoint", str(tmp_path / "new"), "--trim", str(empty)]) == 2
    assert f"--trim {empty}: has no text" in capsys.readouterr().err
    assert main(["import", str(folder), "--checkpoint", str(tmp_path / "new"), "--trim", str(tmp_path / "no")]) == 1
    assert not (tmp_path / "new").exists()
    with pytest.raises(SettingsError, match="has no text"):
        pipeline.trim_imported(pipeline.read_source(folder, ImportSettings(), lambda line: None), [empty], print)


def test_the_lowest_score_is_kept_from_which_that_of_unknown_characters_is_made() -> None:
    model = ModelProto()
    for piece, kind in zip(("<pad>", "<s>", "</s>", "<unk>"), (3, 3, 3, 2), strict=True):
        model.pieces.add(piece=piece, type=kind)
    for piece, score in (("ab", -2.0), ("cd", -9.0), ("ef", -5.0), ("a", -6.0)):
        model.pieces.add(piece=piece, score=score)
    assert assembly._kept(model, frozenset({4}), None) == [0, 1, 2, 3, 4, 5, 7]
