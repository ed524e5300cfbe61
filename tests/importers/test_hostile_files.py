"""A file of a model that was made to take memory or time without end is refused in one line, before it does."""

from __future__ import annotations

import gzip
import json
import struct
import zipfile
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.errors import CheckpointError, SettingsError, SourceModelError
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.pickles import MOST_CLASSES, read_pickle
from lingon.importers.files.pieces import ModelPiece, Numbering, SpecialIds, read_merges, read_model, renumber, rewrite
from lingon.importers.files.tensors import PICKLED, open_tensors
from lingon.importers.readers.codes import languages_by_code, tags_of
from lingon.importers.readers.ctranslate2 import read_vocabularies
from lingon.importers.readers.ctranslate2_files import read_variables
from lingon.importers.readers.marian_files import (
    MOST_NESTED,
    MOST_OPTIONS,
    MarianOptions,
    open_model,
    read_decoder_options,
    read_lexicon,
    read_vocabulary,
)
from lingon.importers.readers.opennmt import open_opennmt_py
from lingon.importers.readers.opus_mt import PieceDictionary
from lingon.training.checkpoint import load_progress
from lingon.training.config import load_config
from tests.support.timing import LINEAR, growth_of

LEVELS = 40  # of values that stand for two of the level below: together more than memory holds


def _doubled_yaml() -> str:
    levels = "".join(f"a{level}: &a{level} [*a{level - 1}, *a{level - 1}]\n" for level in range(1, LEVELS))
    return f"a0: &a0 x\n{levels}models: [*a{LEVELS - 1}]\nvocabs: [a.spm]\n"


def _doubled_pickle() -> bytes:
    """A dictionary whose key is a tuple of a tuple twice, and so on."""
    levels = b"".join(bytes([0x68, level, 0x86, 0x71, level + 1]) for level in range(LEVELS))
    return b"\x80\x02}K\x01q\x00" + levels + b"K\x02s."


def _archived(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, each in (("data.pkl", content), ("version", b"3"), ("byteorder", b"little")):
            archive.writestr(f"archive/{name}", each)


def test_options_with_aliases_are_refused(tmp_path: Path) -> None:
    (tmp_path / "decoder.yml").write_text(_doubled_yaml())
    with pytest.raises(SourceModelError, match=r"decoder\.yml: its options are not plain YAML"):
        read_decoder_options(tmp_path)
    with pytest.raises(SourceModelError, match="its options are not plain YAML"):
        MarianOptions.parse(tmp_path / "model.npz", _doubled_yaml())


@pytest.mark.parametrize("depth", [MOST_NESTED + 1, 300, 30_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_options_that_are_nested_deeply_are_refused(tmp_path: Path, depth: int, brackets: str) -> None:
    opening = "[" * depth if brackets == "[]" else "{a: " * depth
    text = f"models: {opening}{brackets[1] * depth}"
    with pytest.raises(SourceModelError, match="its options are not plain YAML"):
        MarianOptions.parse(tmp_path / "model.npz", text)


def test_options_of_decoders_are_looked_for_in_short_files_alone(tmp_path: Path) -> None:
    (tmp_path / "decoder.yml").write_text("models: [a.npz]\nvocabs: [a.spm]\n" + "#" * MOST_OPTIONS)
    assert read_decoder_options(tmp_path).path is None


@pytest.mark.parametrize("old", [False, True])
def test_a_pickle_that_uses_a_tuple_twice_is_refused(tmp_path: Path, *, old: bool) -> None:
    path = tmp_path / PICKLED
    torch.save({"x": torch.zeros(2, 2)}, path, _use_new_zipfile_serialization=not old)
    assert open_tensors(tmp_path).take("x", (2, 2)).shape == (2, 2)
    if old:
        before = b"".join(path.read_bytes().partition(b".\x80\x02}q\x00")[:1]) + b"."
        path.write_bytes(before + _doubled_pickle())
    else:
        _archived(path, _doubled_pickle())
    with pytest.raises(SourceModelError, match="not a file of tensors alone"):
        open_tensors(tmp_path)


@pytest.mark.parametrize("count", [MOST_CLASSES, MOST_CLASSES + 1, 2_000])
def test_a_pickle_that_names_many_classes_is_refused(tmp_path: Path, count: int) -> None:
    """PyTorch looks through all that are allowed at each one."""
    named = b"".join(b"conmt.models\nModel%d\n" % number for number in range(count))
    _archived(tmp_path / "model.pt", b"\x80\x02](" + named + b"e.")
    if count <= MOST_CLASSES:
        assert len(read_pickle(tmp_path / "model.pt", ("onmt.",))) == count
        return
    with pytest.raises(
        SourceModelError, match=r"not a file of tensors, options and vocabularies alone \(ValueError\)$"
    ):
        read_pickle(tmp_path / "model.pt", ("onmt.",))


@pytest.mark.parametrize("depth", [*range(900, 1000, 9), 100_000])
def test_deep_nesting_in_json_is_one_line(tmp_path: Path, depth: int) -> None:
    """Around the depth at which JSON is not read, and beyond it."""
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"weight_map": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(SourceModelError, match=r"has no weight_map|not JSON"):
        open_tensors(tmp_path)
    with suppress(SourceModelError):
        assert JsonFields.read(path).error("weight_map", "must be an object")


@pytest.mark.parametrize("piece", ["\\ud800", "a\\udfff"])
def test_half_of_a_surrogate_pair_is_no_piece(tmp_path: Path, piece: str) -> None:
    for name, content in (
        ("vocab.json", f'{{"</s>": 0, "<unk>": 1, "{piece}": 2}}'),
        ("vocab.yml", f'</s>: 0\n<unk>: 1\n"{piece}": 2\n'),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(SourceModelError, match=r"not JSON|no character"):
            read_vocabulary(tmp_path / name)
    with pytest.raises(SourceModelError, match="not JSON"):
        JsonFields.read(tmp_path / "vocab.json")


@pytest.mark.parametrize("digits", [19, 5000, 100_000])
def test_an_id_of_many_digits_is_one_line(tmp_path: Path, digits: int) -> None:
    (tmp_path / "vocab.yml").write_text(f"</s>: {'9' * digits}\n")
    with pytest.raises(SourceModelError, match="must be a piece, a colon and its id"):
        read_vocabulary(tmp_path / "vocab.yml")


@pytest.mark.parametrize("name", ["model.bin.gz", "model.npz"])
def test_a_model_of_zeros_that_is_packed_a_thousandfold_is_refused(tmp_path: Path, name: str) -> None:
    path, zeros = tmp_path / name, bytes(2**27)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(zeros, 1))
    else:
        np.savez_compressed(path, zeros=np.frombuffer(zeros, np.int8))
    with pytest.raises(SourceModelError, match="bytes when unpacked"):
        open_model(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_of_ctranslate2_must_be_finite(tmp_path: Path, value: float) -> None:
    def text(name: str) -> bytes:
        return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"

    variable = text("decoder/alignment_layer") + struct.pack("<BBIf", 0, 0, 4, value)
    head = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<II", 1, 1)
    (tmp_path / "model.bin").write_bytes(head + variable + struct.pack("<I", 0))
    with pytest.raises(SourceModelError, match="decoder/alignment_layer must be finite"):
        read_variables(tmp_path / "model.bin")


def test_deep_nesting_in_settings_and_checkpoints_of_lingon_is_one_line(tmp_path: Path) -> None:
    nested = "[" * 100_000 + "]" * 100_000
    for name, content in (("config.toml", f"a = {nested}"), ("config.json", nested), ("state.json", nested)):
        (tmp_path / name).write_text(content)
    for name in ("config.toml", "config.json"):
        with pytest.raises(SettingsError, match="nested too deeply"):
            load_config(tmp_path / name)
    with pytest.raises(CheckpointError, match="nested too deeply"):
        load_progress(tmp_path)


MEASURABLE = 0.005  # seconds of CPU time; a file is made longer until it takes so long
LEAST, MOST = 1_250, 300_000  # parts of a file
Read = Callable[[], object]


def _letters(number: int) -> str:
    """A name of eight letters for each number."""
    return "".join(chr(97 + number // 26**place % 26) for place in range(8))


def marian_arrays(folder: Path, n: int) -> Read:
    """A binary file of many arrays, the last two of one name."""
    names = [f"{number:07d}".encode() for number in (*range(n - 1), n - 2)]
    heads = b"".join(struct.pack("<4Q", len(name), 0x0404, 1, 4) for name in names)
    shapes, data = struct.pack(f"<{n}i", *[1] * n), bytes(4 * n)
    path = folder / "model.bin"
    path.write_bytes(struct.pack("<2Q", 1, n) + heads + b"".join(names) + shapes + struct.pack("<Q", 0) + data)
    return lambda: open_model(path)


def marian_archive(folder: Path, n: int) -> Read:
    """A NumPy archive of many arrays, each of which is read."""
    path = folder / "model.npz"
    np.savez(path, **{f"a{number}": np.zeros(1, np.float32) for number in range(n // 4)}, **_options())

    def read() -> None:
        tensors, _ = open_model(path)
        for name in tensors:
            tensors.take(name, (1,))

    return read


def _options() -> dict[str, Any]:
    return {"special:model.yml": np.frombuffer(b"type: transformer\n\0", np.int8)}


def dictionary_of_lines(folder: Path, n: int) -> Read:
    path = folder / "vocab.yml"
    path.write_text("</s>: 0\n<unk>: 1\n" + "".join(f'"{_letters(number)}\\"": {number}\n' for number in range(2, n)))
    return lambda: read_vocabulary(path)


def dictionary_with_a_long_line(folder: Path, n: int) -> Read:
    """A key that ends in blanks, without a colon: where does the key end?"""
    path = folder / "vocab.yml"
    path.write_text("</s>: 0\n<unk>: 1\na" + " " * (30 * n) + "\n")
    return lambda: read_vocabulary(path)


def dictionary_with_colons(folder: Path, n: int) -> Read:
    path = folder / "vocab.yml"
    path.write_text("</s>: 0\n<unk>: 1\na" + " : 1" * (30 * n) + " x\n")
    return lambda: read_vocabulary(path)


def dictionary_of_json(folder: Path, n: int) -> Read:
    path = folder / "vocab.json"
    path.write_text(json.dumps({"<pad>": 0, "</s>": 1, **{_letters(number): number for number in range(2, n)}}))
    return lambda: PieceDictionary.read(path)


def lexicon(folder: Path, n: int) -> Read:
    """Each source piece with some target pieces."""
    path, pieces = folder / "lex.s2t", tuple(_letters(number) for number in range(n // 10))
    path.write_text("".join(f"{pieces[-each]} {pieces[each]} 0.5\n" * 3 for each in range(n // 10)))
    numbering = Numbering(pieces, tuple(range(len(pieces))), (), 0)
    return lambda: read_lexicon(path, numbering, numbering, (n, n), shared=True)


def merges(folder: Path, n: int) -> Read:
    path = folder / "merges.txt"
    path.write_text("#version: 0.2\n" + "".join(f"{_letters(number)} {_letters(number)}</w>\n" for number in range(n)))
    return lambda: read_merges(path)


def ctranslate2_variables(folder: Path, n: int) -> Read:
    """Numbers, arrays and names that stand for others, as many of each."""

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    n //= 4
    scalars = b"".join(text(f"s{number:07d}") + struct.pack("<BBIi", 0, 3, 4, 1) for number in range(n))
    arrays = b"".join(text(f"a{number:07d}") + struct.pack("<BIBIi", 1, 1, 3, 4, 1) for number in range(n))
    aliases = b"".join(text(f"b{number:07d}") + text(f"a{number:07d}") for number in range(n))
    path, count = folder / "model.bin", struct.pack("<I", 2 * n)
    head = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<I", 1)
    path.write_bytes(head + count + scalars + arrays + struct.pack("<I", n) + aliases)
    return lambda: read_variables(path)


def ctranslate2_vocabulary(folder: Path, n: int) -> Read:
    """Many pieces, of which the last one comes twice."""
    (folder / "shared_vocabulary.txt").write_text("".join(f"{_letters(number)}\n" for number in (*range(n), n - 1)))
    return lambda: read_vocabularies(folder, "<unk>")


def codes_of_one_language(folder: Path, n: int) -> Read:
    """Scripts and regions of one language."""
    codes = [f"deu_{_letters(number)[:4].title()}_{_letters(number)[4:8]}x" for number in range(n // 20)]
    return lambda: tags_of(codes)


def codes_of_many_languages(folder: Path, n: int) -> Read:
    codes = {f">>{_letters(number)[:5]}<<" for number in range(n // 20)}
    return lambda: languages_by_code(codes, ("en", "de"))


def pieces(folder: Path, n: int) -> Read:
    """Single characters that the segmenter does not have, and pieces that are never generated."""
    segmenter = ModelProto()
    for text, kind in (("<unk>", ModelPiece.UNKNOWN), ("</s>", ModelPiece.CONTROL), ("x", ModelPiece.NORMAL)):
        segmenter.pieces.add(piece=text, type=kind)
    n //= 4
    single, silent = [chr(0x20000 + number) for number in range(n)], [f">>{_letters(number)}<<" for number in range(n)]
    vocabulary = ["</s>", "<unk>", *single, *silent, "<pad>"]
    special = SpecialIds(pad=2 * n + 2, start=2 * n + 2, eos=0, unk=1)

    def read() -> None:
        model = read_model(segmenter.SerializeToString(), "source.spm")
        rewrite(model, renumber(vocabulary, special, [model], set(silent)), set(silent))

    return read


def segmenter(folder: Path, n: int) -> Read:
    model = ModelProto()
    for number in range(n):
        model.pieces.add(piece=_letters(number), type=ModelPiece.UNKNOWN if number == 0 else ModelPiece.NORMAL)
    content = model.SerializeToString()
    return lambda: read_model(content, "source.spm")


def safetensors(folder: Path, n: int) -> Read:
    save_file({_letters(number): torch.zeros(1) for number in range(n // 4)}, folder / "model.safetensors")
    return lambda: [open_tensors(folder).take(_letters(0), (1,))]


def pickled(folder: Path, n: int) -> Read:
    torch.save({_letters(number): torch.zeros(1) for number in range(n // 20)}, folder / "pytorch_model.bin")
    return lambda: open_tensors(folder).take(_letters(0), (1,))


def checkpoint(folder: Path, n: int) -> Read:
    """A checkpoint of OpenNMT-py with a long vocabulary and many options."""
    pieces = [_letters(number) for number in range(n // 8)]
    options = Namespace(**{_letters(number): number for number in range(n // 8)})
    torch.save({"model": {}, "vocab": {"src": pieces, "tgt": pieces}, "opt": options}, folder / "model.pt")
    return lambda: open_opennmt_py(folder)


def graphs(folder: Path, n: int) -> Read:
    """Tensors with names of their own, with made-up names, and copies of them."""
    zero, nodes, tensors = helper.make_tensor, [], []
    for number in range(n // 20):
        name = f"model.layers.{_letters(number)}"
        tensors.append(zero(f"onnx::MatMul_{number}", TensorProto.FLOAT, [1, 1], [0.0]))
        nodes.append(helper.make_node("MatMul", ["x", f"onnx::MatMul_{number}"], [f"y{number}"], f"/{name}/MatMul"))
        nodes.append(helper.make_node("Identity", [f"onnx::MatMul_{number}"], [f"{name}.weight"], f"copy{number}"))
    model = helper.make_model(helper.make_graph(nodes, "graph", [], [], tensors))
    for name in ("encoder_model.onnx", "decoder_model.onnx"):
        onnx.save(model, folder / name)
    return lambda: open_tensors(folder)


GENERATORS = [
    marian_arrays,
    marian_archive,
    dictionary_of_lines,
    dictionary_with_a_long_line,
    dictionary_with_colons,
    dictionary_of_json,
    lexicon,
    merges,
    ctranslate2_variables,
    ctranslate2_vocabulary,
    codes_of_one_language,
    codes_of_many_languages,
    pieces,
    segmenter,
    safetensors,
    pickled,
    checkpoint,
    graphs,
]


@pytest.mark.parametrize("write", GENERATORS)
def test_twice_the_file_takes_twice_the_time(tmp_path: Path, write: Callable[[Path, int], Read]) -> None:
    def prepare(n: int) -> Read:
        folder = tmp_path / str(n)
        folder.mkdir(exist_ok=True)
        read = write(folder, n)

        def work() -> None:
            with suppress(SourceModelError):
                read()

        return work

    growth = growth_of(prepare, LEAST, worth=MEASURABLE, most=MOST)
    assert growth.ratio <= LINEAR, growth
