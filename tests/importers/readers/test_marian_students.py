"""Students of 2025 and 2026: vocabularies that cut text as sentencepiece does, and two of them for one table."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from lingon.importers.pipeline import ImportSettings, read_source
from lingon.text import UNK, normalise
from tests.support.foreign_models import lines
from tests.support.marian_models import STUDENT, Marian, MarianForm, binary, names_of, written

SETTINGS = ImportSettings(languages=(["en"], ["de"]))
HARD = [
    "In 1984 there were 12,345 of them.",
    "__sep__ a text before it __misc0__",
    "no space__sep__around it, __misc1__7",
    "Ｆｕｌｌ ｗｉｄｔｈ, ﬁne ½ ① Ⅷ ㌔",
    "STRASSE straße ÄÖÜ äöü",
    "a\u00a0b\u3000c  d",
    "unknown: \u2603\u2603 \u4e2d\u6587",
]
VOCABULARIES: dict[str, dict[str, Any]] = {
    "user-defined pieces": {"user_defined_symbols": ["__sep__", "__misc0__", "__misc1__"]},
    "single digits": {"split_digits": True},
    "no normalisation": {"normalization_rule_name": "identity"},
    "case folded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "nfkc": {"normalization_rule_name": "nfkc"},
    "bytes": {"byte_fallback": True, "user_defined_symbols": ["__sep__"]},
    "no prefix, spaces kept": {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "spaces at the end": {"treat_whitespace_as_suffix": True},
}


def vocabulary(**options: Any) -> bytes:
    """Return a sentencepiece model as the recipe of the students trains it: the end is 0, unknown 1."""
    written_to = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines("en"), *lines("de")]),
        model_writer=written_to,
        vocab_size=600,
        hard_vocab_limit=False,
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        minloglevel=2,
        **options,
    )
    return written_to.getvalue()


def save(folder: Path, pieces: bytes) -> Path:
    folder.mkdir()
    rows = len(names_of(pieces))
    model = Marian.random((rows, rows), seed=3, ends=2.0, **STUDENT)
    (folder / "vocab.ende.spm").write_bytes(pieces)
    (folder / "model.ende.bin").write_bytes(binary(model, {}))
    return folder


@pytest.mark.parametrize("name", VOCABULARIES)
def test_texts_have_the_ids_of_sentencepiece(tmp_path: Path, name: str) -> None:
    pieces = vocabulary(**VOCABULARIES[name])
    imported = read_source(save(tmp_path / "files", pieces), SETTINGS, lambda line: None)
    tokenizer, rows = imported.checkpoint.tokenizer, imported.source.source.rows
    theirs = sentencepiece.SentencePieceProcessor(model_proto=pieces)
    for text in map(normalise, [*HARD, *lines("en")[:30], *lines("de")[:30]]):
        expected = theirs.encode(text)
        assert [rows[each] for each in tokenizer.encode_source(text)] == [*expected, 0], text
        new = {row: number for number, row in enumerate(rows)}
        known = [each for each in expected if each != 1]
        assert tokenizer.decode([new[each] for each in known]) == theirs.decode(known), text


def test_two_vocabularies_may_have_one_table(tmp_path: Path) -> None:
    """The student from English to Chinese of 2025 has two vocabularies of 32,000 pieces, and one table for both."""
    model, files = written(MarianForm(STUDENT, seed=6, ends=2.0, two=True), tmp_path / "files")
    imported = files.imported()
    source, target = imported.source.source, imported.source.target
    assert source.pieces != target.pieces
    ids = imported.checkpoint.tokenizer.encode_source("This book deals with the invasion.")
    said = [each for each in range(4, len(target.rows)) if each not in target.never]
    given = said[:5]
    found = imported.checkpoint.model(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([[1, *given]]))
    expected = model.logits([source.rows[each] for each in ids], [target.rows[each] for each in given])
    wanted = torch.from_numpy(expected[:, [target.rows[each] for each in said]])
    torch.testing.assert_close(found[0][:, said].detach(), wanted.float(), rtol=1e-3, atol=1e-3)
    assert UNK not in ids


def test_four_decoder_layers_and_64_000_pieces_are_read(tmp_path: Path) -> None:
    """The students of the shape base-memory for Japanese, Korean and Chinese; the width is that of the tests."""
    pieces = sentencepiece.sentencepiece_model_pb2.ModelProto.FromString(vocabulary())
    lowest = min(piece.score for piece in pieces.pieces)
    for number in range(64_000 - len(pieces.pieces)):
        pieces.pieces.add(
            piece=f"\u2581{chr(0x4E00 + number // 200)}{chr(0x3041 + number % 80)}{number}", score=lowest - 1
        )
    content = bytes(pieces.SerializeToString())
    folder = tmp_path / "files"
    folder.mkdir()
    model = Marian.random((64_000, 64_000), seed=3, ends=2.0, **{**STUDENT, "dec-depth": 4})
    (folder / "vocab.jaen.spm").write_bytes(content)
    (folder / "model.jaen.bin").write_bytes(binary(model, {}))
    imported = read_source(folder, ImportSettings(), lambda line: None)
    assert imported.source.facts.languages == ("ja", "en")
    assert imported.source.settings.decoder_layers == 4
    assert len(imported.source.source.rows) == 64_002
    assert imported.source.settings.tie == "all"
