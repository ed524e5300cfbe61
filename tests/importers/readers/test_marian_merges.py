"""The first models of OPUS-MT: Moses tokens and the merges of subword-nmt beside a model of Marian."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from lingon.errors import SourceModelError
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits import marian as toolkit
from lingon.text import FORBIDDEN, normalise
from lingon.training.search import SearchSettings, translate
from tests.support.foreign_clients import NODE_CLIENT
from tests.support.foreign_models import lines, moses_tokens, silent
from tests.support.marian_models import Marian, save_npz
from tests.support.tokenizers import END, learn_merges, pieces_of, slow_pieces

TEXTS = [normalise(text) for text in lines("en")[:40]]
SETTINGS = ImportSettings(languages=(["en"], ["de"]))


def with_marks(piece: str) -> str:
    """Return a piece as subword-nmt writes it."""
    return piece.removesuffix(END) if piece.endswith(END) else f"{piece}@@"


def save(folder: Path) -> Marian:
    """Save a model with one vocabulary, a code of a target language, and merges for each side."""
    folder.mkdir(parents=True)
    pieces: set[str] = set()
    for side, language in (("source", "en"), ("target", "de")):
        tokens = moses_tokens(language)
        merges = learn_merges(tokens, 120)
        pieces.update(map(with_marks, pieces_of(tokens, merges)))
        listed = "".join(f"{first} {second}\n" for first, second in merges)
        (folder / f"{side}.bpe").write_text(f"#version: 0.2\n{listed}", encoding="utf-8")
    vocabulary = ["</s>", "<unk>", *sorted(pieces)]
    listed = "".join(f"{json.dumps(piece, ensure_ascii=False)}: {number}\n" for number, piece in enumerate(vocabulary))
    (folder / "opus.bpe32k.vocab.yml").write_text(listed, encoding="utf-8")
    names = "models:\n  - opus.npz\nvocabs:\n  - opus.bpe32k.vocab.yml\n  - opus.bpe32k.vocab.yml\nbeam-size: 6\n"
    (folder / "decoder.yml").write_text(names)
    model = Marian.random((len(vocabulary), len(vocabulary)), seed=2, ends=1.0)
    save_npz(folder / "opus.npz", model)
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Marian]:
    folder = tmp_path_factory.mktemp("merges") / "opus"
    return folder, save(folder)


@pytest.fixture(scope="module")
def imported(saved: tuple[Path, Marian]) -> Imported:
    return pipeline.read_source(saved[0], SETTINGS, silent)


def test_ids_are_those_of_subword_nmt(imported: Imported) -> None:
    """Moses tokens, cut by the definition of the merges, looked up in the dictionary."""
    from sacremoses import MosesTokenizer

    moses, merges = MosesTokenizer(lang="en"), learn_merges(moses_tokens("en"), 120)
    rows = dict(zip(imported.source.source.pieces, imported.source.source.rows, strict=True))
    for text in TEXTS:
        tokens = moses.tokenize(text, aggressive_dash_splits=True)
        expected = [rows.get(piece, 1) for token in tokens for piece in slow_pieces(token, merges)]
        ids = imported.checkpoint.tokenizer.encode_source(text)
        assert [imported.source.source.rows[each] for each in ids] == [*expected, 0]


def test_tokens_are_those_of_the_transcription(imported: Imported, saved: tuple[Path, Marian]) -> None:
    _, model = saved
    target, tokenizer = imported.source.target, imported.checkpoint.tokenizer
    sources = [tokenizer.encode_source(text) for text in TEXTS]
    found = translate(imported.checkpoint.model, sources, settings := SearchSettings())
    rows = len(model.tensors["decoder_ff_logit_out_b"][0])
    never = sorted({target.rows[each] for each in (*FORBIDDEN, *target.never)} - {rows})
    for source, (best, *_) in zip(sources, found, strict=True):
        most = settings.max_length(len(source), imported.checkpoint.model.settings.max_positions)
        expected = model.greedy([imported.source.source.rows[each] for each in source], never, eos=0, most=most)
        assert [target.rows[each] for each in best.tokens] == expected
        assert "@@" not in tokenizer.decode(best.tokens)
    assert len({best.tokens for best, *_ in found}) >= 10  # otherwise equal tokens would say nothing


@pytest.mark.foreign("node")
def test_the_engine_of_marian_finds_the_same_tokens(
    imported: Imported, saved: tuple[Path, Marian], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive of NumPy and a dictionary, which the engine itself does not read."""
    monkeypatch.chdir(NODE_CLIENT)
    (line,) = toolkit.compare(imported.checkpoint, imported.source, saved[0], TEXTS[:10])
    assert re.search(r"tokens of (\d+) of \1 texts are the same", line), line


def test_texts_come_back_from_their_ids(imported: Imported) -> None:
    tokenizer = imported.checkpoint.tokenizer
    same = [
        text for text in map(normalise, lines("de")[:100]) if tokenizer.decode(tokenizer.encode_target(text)) == text
    ]
    assert len(same) > 90  # quotation marks and dashes of some are written in another way


def test_a_model_that_does_not_say_its_languages_asks_for_them(saved: tuple[Path, Marian]) -> None:
    with pytest.raises(SourceModelError, match="name them, as in --languages en:de"):
        pipeline.read_source(saved[0], ImportSettings(), silent)


def test_a_missing_file_of_merges_is_named(tmp_path: Path) -> None:
    save(tmp_path / "opus")
    (tmp_path / "opus" / "target.bpe").unlink()
    with pytest.raises(SourceModelError, match=r"target.bpe: No such file"):
        pipeline.read_source(tmp_path / "opus", SETTINGS, silent)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_lexicon_is_written_in_the_pieces_of_the_vocabulary(tmp_path: Path, chosen: bool) -> None:
    """Those that end a word and those that do not, of the same letters; a piece is also a translation of itself."""
    save(tmp_path / "opus")
    listed = (tmp_path / "opus" / "opus.bpe32k.vocab.yml").read_text(encoding="utf-8").splitlines()
    pieces = [json.loads(line.rpartition(": ")[0]) for line in listed]
    words = [each for piece in pieces if f"{piece}@@" in pieces for each in (piece, f"{piece}@@")]
    assert len(words) > 20
    translations = dict(zip(words, [*words[3:], *words[:3]], strict=True))
    path = tmp_path / ("lex.s2t" if chosen else "opus/lex.2.1.ende.s2t")
    path.write_text("".join(f"{target} {word} 1\n" for word, target in translations.items()), encoding="utf-8")
    settings = ImportSettings(languages=(["en"], ["de"]), shortlist=str(path) if chosen else "own")
    source = pipeline.read_source(tmp_path / "opus", settings, silent).source
    assert source.shortlist is not None
    offsets = pairwise(source.shortlist.offsets.tolist())
    found = {
        pieces[row]: {pieces[source.target.rows[each]] for each in source.shortlist.pieces[begin:end]}
        for row, (begin, end) in zip(source.source.rows, offsets, strict=True)
        if row < len(pieces)
    }
    always = {pieces[source.target.rows[each]] for each in source.shortlist.always}
    assert {word: found[word] for word in words} == {
        word: {word, target} - always for word, target in translations.items()
    }
