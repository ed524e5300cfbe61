"""A file of a model that was made to take memory or time without end is refused in one line, before it does."""

from __future__ import annotations

import gzip
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from lingon.errors import CheckpointError, SettingsError, SourceModelError
from lingon.importers.files.fields import Fields
from lingon.importers.files.tensors import PICKLED, open_tensors
from lingon.importers.readers.ctranslate2.container import read_variables
from lingon.importers.readers.marian.container import open_model
from lingon.importers.readers.marian.files import read_decoder_options
from lingon.importers.readers.marian.options import MOST_NESTED, MOST_OPTIONS, MarianOptions
from lingon.importers.readers.marian.vocabulary import read_vocabulary
from lingon.training.checkpoint import load_progress
from lingon.training.config.run import load_config

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


@pytest.mark.parametrize("depth", [*range(900, 1000, 9), 100_000])
def test_deep_nesting_in_json_is_one_line(tmp_path: Path, depth: int) -> None:
    """Around the depth at which JSON is not read, and beyond it."""
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"weight_map": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(SourceModelError, match=r"has no weight_map|not JSON"):
        open_tensors(tmp_path)
    with suppress(SourceModelError):
        assert Fields.read(path).error("weight_map", "must be an object")


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
        Fields.read(tmp_path / "vocab.json")


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
