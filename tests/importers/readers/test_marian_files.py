"""Files of Marian that are cut, changed or contradict each other are one line each, which names the file."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.errors import SourceModelError
from lingon.importers import pipeline
from lingon.importers.files.pieces import Numbering
from lingon.importers.pipeline import ImportSettings
from lingon.importers.readers.marian_files import open_model, read_lexicon, read_vocabulary
from tests.support.foreign_models import silent
from tests.support.marian_models import (
    PRE_NORM,
    STUDENT,
    Marian,
    binary,
    lexicon,
    names_of,
    own_pieces,
    quantised,
    save_npz,
)

SETTINGS = ImportSettings(languages=(["en"], ["de"]))


def read(folder: Path) -> None:
    pipeline.read_source(folder, SETTINGS, silent)


@pytest.fixture(scope="module")
def pieces() -> bytes:
    return own_pieces(200)


@pytest.fixture
def folder(tmp_path: Path, pieces: bytes) -> Path:
    """A folder with a vocabulary; a test adds the model."""
    (tmp_path / "vocab.ende.spm").write_bytes(pieces)
    return tmp_path


def rows_of(pieces: bytes) -> int:
    return len(names_of(pieces))


def model_of(pieces: bytes, **changed: Any) -> Marian:
    rows = rows_of(pieces)
    return Marian.random((rows, rows), 1, 0.0, **changed)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"type": "s2s"}, "type must be 'transformer', is 's2s'"),
    "average attention": (
        {"transformer-decoder-autoreg": "average-attention"},
        "transformer-decoder-autoreg must be 'self-attention' or 'rnn', is 'average-attention'",
    ),
    "another cell": ({**STUDENT, "dec-cell": "gru"}, "dec-cell must be 'ssru', is 'gru'"),
    "tied layers": ({"transformer-tied-layers": [1, 1]}, "transformer-tied-layers must be [], is list"),
    "projection": ({"transformer-no-projection": True}, "transformer-no-projection must be False, is True"),
    "norms": (
        {"transformer-postprocess": "hn"},
        "transformer-preprocess and transformer-postprocess must be '' and 'dan', 'n' and 'da', or 'n' and 'dan', "
        "are '' and 'hn'",
    ),
    "final norm": (
        {"transformer-postprocess-top": "da"},
        "transformer-postprocess-top must be '' or 'n', is 'da'",
    ),
    "activation": ({"transformer-ffn-activation": "elu"}, "transformer-ffn-activation must be 'relu' or 'swish' or"),
    "width": ({"transformer-decoder-dim-ffn": 7}, "transformer-decoder-dim-ffn must be 0 or that of the encoder, is 7"),
    "depth": ({"transformer-ffn-depth": 3}, "transformer-ffn-depth must be 2, is 3"),
    "size": ({"dim-emb": "x"}, "dim-emb must be 4 to 1,048,576, got 'x'"),
    "heads": ({"transformer-heads": 3}, "dim-emb must be even and a multiple of transformer-heads (3)"),
    "layers": ({"enc-depth": 10**9}, "enc-depth must be 1 to 1,000, got '1000000000'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_without_a_counterpart_are_named(folder: Path, pieces: bytes, name: str) -> None:
    changed, message = REFUSED[name]
    model = model_of(pieces)
    model.options.update(changed)
    save_npz(folder / "model.npz", model)
    with pytest.raises(SourceModelError) as caught:
        read(folder)
    assert message in str(caught.value)
    assert "model.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_unknown_options_are_named_at_once(folder: Path, pieces: bytes) -> None:
    model = model_of(pieces)
    model.options.update({"ulr": True, "right-left": True})
    save_npz(folder / "model.npz", model)
    with pytest.raises(SourceModelError, match="right-left must be False, is True; ulr must be False, is True"):
        read(folder)


def without(model: Marian, name: str) -> None:
    del model.tensors[name]


def reshaped(model: Marian, name: str) -> None:
    model.tensors[name] = model.tensors[name].reshape(-1, 1)


def infinite(model: Marian, name: str) -> None:
    model.tensors[name][0, 0] = np.inf


def added(model: Marian, name: str) -> None:
    model.tensors["encoder_l3_ffn_W1"] = model.tensors[name]


TENSORS: dict[str, tuple[Callable[[Marian, str], None], str]] = {
    "missing": (without, "has no tensor decoder_l1_context_Wq"),
    "shape": (reshaped, "decoder_l1_context_Wq must have shape (32, 32), has (1024, 1)"),
    "infinite": (infinite, "decoder_l1_context_Wq has values that are not finite"),
    "one more": (added, "has tensors that this form of model does not use: encoder_l3_ffn_W1"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_fit_are_named(folder: Path, pieces: bytes, name: str) -> None:
    change, message = TENSORS[name]
    model = model_of(pieces)
    change(model, "decoder_l1_context_Wq")
    save_npz(folder / "model.npz", model)
    with pytest.raises(SourceModelError) as caught:
        read(folder)
    assert message in str(caught.value)


def test_a_folder_must_have_one_model_and_its_vocabulary(folder: Path, pieces: bytes) -> None:
    with pytest.raises(SourceModelError, match=r"has no config.json and no model of Marian"):
        read(folder)
    for name in ("a.npz", "b.npz"):
        save_npz(folder / name, model_of(pieces))
    with pytest.raises(SourceModelError, match=r"must have one model of Marian, has 2: a.npz, b.npz"):
        read(folder)
    (folder / "b.npz").unlink()
    (folder / "vocab.ende.spm").unlink()
    with pytest.raises(SourceModelError, match="has no vocabulary: none of"):
        read(folder)


def test_a_table_must_have_a_row_for_each_piece(folder: Path, pieces: bytes) -> None:
    rows = rows_of(pieces)
    save_npz(folder / "model.npz", Marian.random((rows - 1, rows - 1), 1, 0.0))
    with pytest.raises(SourceModelError, match=rf"Wemb .* {rows} pieces of vocab.ende.spm"):
        read(folder)


def test_rows_beyond_the_vocabulary_are_never_generated(folder: Path, pieces: bytes) -> None:
    rows = rows_of(pieces)
    save_npz(folder / "model.npz", Marian.random((rows + 5, rows + 5), 1, 0.0))
    target = pipeline.read_source(folder, SETTINGS, silent).source.target
    assert {target.rows[each] for each in target.never} >= set(range(rows, rows + 5))


def test_control_bytes_are_read_and_never_generated(tmp_path: Path) -> None:
    pieces = own_pieces(200, spells_bytes=True)
    (tmp_path / "vocab.ende.spm").write_bytes(pieces)
    save_npz(tmp_path / "model.npz", model_of(pieces))
    imported = pipeline.read_source(tmp_path, SETTINGS, silent)
    target = imported.source.target
    assert [target.pieces[each] for each in target.never] == [f"<0x{value:02X}>" for value in range(32)]
    ids = imported.checkpoint.tokenizer.encode_source("\u2603")
    assert [target.pieces[each] for each in ids if target.pieces[each].startswith("<0x")] == [
        "<0xE2>",
        "<0x98>",
        "<0x83>",
    ]


@pytest.fixture(scope="module")
def packed(pieces: bytes) -> bytes:
    """A binary file with 8-bit matrices."""
    model, integers = quantised(model_of(pieces, **STUDENT), {})
    return binary(model, integers)


def test_a_binary_file_that_is_cut_is_one_line(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "model.bin"
    lengths = [*range(0, 4096, 97), *range(4096, len(packed), 9973), len(packed) - 1]
    for length in lengths:
        path.write_bytes(packed[:length])
        with pytest.raises(SourceModelError, match=r"model\.bin: ") as caught:
            open_model(path)
        assert len(str(caught.value).splitlines()) == 1


def test_absurd_numbers_in_the_head_take_no_memory(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "model.bin"
    for place in range(0, 8 * 40, 8):
        path.write_bytes(packed[:place] + struct.pack("<Q", 2**62) + packed[place + 8 :])
        with pytest.raises(SourceModelError, match=r"model\.bin: "):
            open_model(path)


def test_a_type_of_one_processor_is_refused(tmp_path: Path, pieces: bytes) -> None:
    model, integers = quantised(model_of(pieces, **STUDENT), {})
    path = tmp_path / "model.bin"
    path.write_bytes(binary(model, integers, kind=0x1801))
    with pytest.raises(SourceModelError, match=r"0x1801; .* float32, float16 and intgemm8"):
        open_model(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY"])
def test_what_is_no_archive_is_one_line(folder: Path, content: bytes) -> None:
    (folder / "model.npz").write_bytes(content)
    with pytest.raises(SourceModelError, match=r"model\.npz: not a NumPy archive"):
        read(folder)


def test_options_that_are_missing_or_no_yaml_are_one_line(folder: Path, pieces: bytes) -> None:
    tensors = model_of(pieces).tensors
    np.savez(folder / "model.npz", **tensors)
    with pytest.raises(SourceModelError, match=r"has no special:model.yml"):
        read(folder)
    for text in (b"a: [", b"- a", b"\xff\xfe"):
        np.savez(folder / "model.npz", **tensors, **{"special:model.yml": np.frombuffer(text, np.int8)})
        with pytest.raises(SourceModelError, match=r"model\.npz: "):
            read(folder)


PIECES = [
    "</s>",
    "<unk>",
    "null",
    "~",
    "1.0",
    "a: 7",
    '"',
    "'",
    "\\",
    "\x84",
    "\u2581x",
    "# b",
    "- c",
    " ",
    "\U0001f600",
]


def test_pieces_that_yaml_reads_as_values_are_pieces(tmp_path: Path) -> None:
    path = tmp_path / "vocab.yml"
    escaped = [json.dumps(piece) if piece not in ("null", "~", "1.0") else piece for piece in PIECES]
    escaped[9], escaped[14] = '"\\x84"', '"\\U0001F600"'
    escaped[7] = "''''"
    path.write_text("".join(f"{piece}: {number}\n" for number, piece in enumerate(escaped)), encoding="utf-8")
    vocabulary = read_vocabulary(path)
    assert vocabulary.pieces == PIECES
    assert (vocabulary.eos, vocabulary.unk) == (0, 1)


VOCABULARIES = {
    "no id": ("</s>: 0\n<unk>: x\n", "line 2 must be a piece, a colon and its id, is '<unk>: x'"),
    "an id twice": ("</s>: 0\n<unk>: 0\n", "'<unk>' and '</s>' both have the id 0"),
    "a piece twice": ("</s>: 0\n<unk>: 1\n<unk>: 2\n", "'<unk>' has the ids 1 and 2"),
    "absurd": ("</s>: 0\n<unk>: 99999999999\n", "must have 1 to 1,048,576 pieces"),
    "empty": ("", "must have 1 to 1,048,576 pieces, has 0"),
    "no end": ("a: 0\n", "has no piece </s> or eos"),
    "an escape": ('</s>: 0\n<unk>: 1\n"\\UFFFFFFFF": 2\n', "line 3 has an escape that is no character"),
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_wrong_dictionary_is_one_line(tmp_path: Path, name: str) -> None:
    content, message = VOCABULARIES[name]
    path = tmp_path / "vocab.yml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SourceModelError) as caught:
        read_vocabulary(path)
    assert message in str(caught.value)


NUMBERING = Numbering(("<pad>", "<s>", "</s>", "<unk>", "a", "b"), (4, 4, 0, 1, 2, 3), (), 0)
LISTS = [[0], [], [3, 2], [2]]


def test_a_text_and_a_binary_file_give_one_shortlist(tmp_path: Path) -> None:
    (tmp_path / "lex.1.50.s2t.bin").write_bytes(lexicon(LISTS, 1))
    (tmp_path / "lex.1.50.s2t").write_text("b a 0.9\na a 0.1\na b 0.5\nNULL a 0.5\n</s> </s> 1\n?? a 1\n")
    found = [
        read_lexicon(tmp_path / name, NUMBERING, NUMBERING, (4, 4), shared=False)
        for name in ("lex.1.50.s2t.bin", "lex.1.50.s2t")
    ]
    for each in found:
        assert each.always.tolist() == [2]
        assert each.select([4]).tolist() == [2, 4, 5]
        assert each.select([5]).tolist() == [2, 4]


def test_the_best_pieces_of_a_text_are_those_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "lex.1.1.s2t").write_text("b a 0.1\na a 0.9\n")
    assert read_lexicon(tmp_path / "lex.1.1.s2t", NUMBERING, NUMBERING, (4, 4), shared=False).select([4]).tolist() == [
        2,
        4,
    ]


def test_every_flipped_bit_of_a_binary_shortlist_is_found(tmp_path: Path) -> None:
    content, path = lexicon(LISTS, 1), tmp_path / "lex.bin"
    for place in range(8, len(content)):  # a changed first number is that of no binary file
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(SourceModelError, match=r"lex\.bin: "):
            read_lexicon(path, NUMBERING, NUMBERING, (4, 4), shared=False)


def test_a_shortlist_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lex.bin"
    path.write_bytes(lexicon([[4], [], [], []], 1))
    with pytest.raises(SourceModelError, match=r"4 pieces, .* target id 4"):
        read_lexicon(path, NUMBERING, NUMBERING, (4, 4), shared=False)
    (tmp_path / "lex.s2t").write_text("a b\n")
    with pytest.raises(SourceModelError, match=r"line 1 must be .* is 'a b'"):
        read_lexicon(tmp_path / "lex.s2t", NUMBERING, NUMBERING, (4, 4), shared=False)


def test_the_options_of_the_zoo_are_read_as_they_are_meant(folder: Path, pieces: bytes) -> None:
    """Otherwise a test that changes one of them would be refused for another reason."""
    for changed in ({}, PRE_NORM, STUDENT):
        save_npz(folder / "model.npz", model_of(pieces, **changed))
        read(folder)


def test_the_error_of_a_damaged_archive_does_not_repeat_its_bytes(folder: Path, pieces: bytes) -> None:
    path = save_npz(folder / "model.npz", model_of(pieces))
    content = bytearray(path.read_bytes())
    content[content.index(b"Wemb.npy") - 3] = (
        0x10  # the length of the name, before the tensor: 4 KB in place of 8 bytes
    )
    path.write_bytes(content)
    with pytest.raises(SourceModelError, match=r"model\.npz: Wemb cannot be read \(File name in directory") as caught:
        read(folder)
    assert len(str(caught.value)) < len(str(path)) + 200
