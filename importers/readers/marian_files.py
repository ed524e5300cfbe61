"""The files of Marian: options, tensors, vocabularies, lexical shortlists, and which files of a folder they are."""

from __future__ import annotations

import gzip
import lzma
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from torch import Tensor
from yaml import AliasEvent, Node, SafeLoader, YAMLError

from lingon.bundle.manifest import Language
from lingon.bundle.schema import unmet_rule
from lingon.errors import SourceModelError
from lingon.importers.files.fields import MOST_JSON_BYTES, JsonFields, first_twice, most_unpacked, parse_json, shown
from lingon.importers.files.pieces import ModelPiece, Numbering, read_model
from lingon.importers.files.tensors import Tensors
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import EOS, FORBIDDEN
from lingon.training.model_settings import Activation, Norms

# The options of a model of Marian, which say what it computes.

NORM_EPSILON = 1e-6
"""Of the layer norms of Marian. The port of its models to Transformers has 1e-5."""

ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "swish": "silu", "gelu": "quick-gelu"}
AS_PLAIN: dict[str, Any] = {
    "type": "transformer",
    "input-types": [],
    "lemma-dim-emb": 0,
    "lemma-dependency": "",
    "right-left": False,
    "transformer-ffn-depth": 2,
    "transformer-decoder-ffn-depth": 0,
    "transformer-no-projection": False,
    "transformer-pool": False,
    "transformer-rnn-projection": False,
    "transformer-tied-layers": [],
    "ulr": False,
}
"""Options that change what a model computes, with the value that Lingon reads. Absent ones have this value."""

PLAIN_DEPTHS = (0, 2)  # of the decoder's feed-forward layer; 0 is that of the encoder
MOST = 2**20
MOST_OPTIONS = 2**16  # bytes of a file of options; those in use have some thousands
MOST_NESTED = 10  # lists and objects of options inside each other
FOLLOWED = ("", "d", "n", "nd")  # values of transformer-postprocess-emb
NORMS: dict[tuple[str, str], Norms] = {("", "an"): "post", ("n", "a"): "pre", ("n", "an"): "both"}
"""By what is done before a layer and after it: a is the sum with its input, n is a norm."""

FINAL_NORMS = ("", "n")  # what is done after the last layer


@dataclass(frozen=True, slots=True)
class MarianOptions:
    """The options of a model, checked as they are read; path: of the model, for messages."""

    path: Path
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, path: Path, text: str) -> MarianOptions:
        """Read the options. Raises SourceModelError if they are of a model that Lingon does not compute."""
        options = cls(path, read_yaml(path, text))
        if problems := options._problems():
            raise SourceModelError(f"{path}: Lingon has no model with these options: {'; '.join(problems)}")
        return options

    def integer(self, name: str, least: int, most: int = MOST) -> int:
        """Return a whole number from least to most."""
        value = self.values.get(name)
        if type(value) is not int or not least <= value <= most:
            raise SourceModelError(f"{self.path}: {name} must be {least} to {most:,}, got {str(value)[:60]!r}")
        return value

    @property
    def norm(self) -> Norms:
        """Where the norms of the layers are."""
        return NORMS[self._without_dropout("transformer-preprocess"), self._without_dropout("transformer-postprocess")]

    @property
    def final_norm(self) -> bool:
        """Whether a norm follows the last layer."""
        return self._without_dropout("transformer-postprocess-top") == "n"

    @property
    def embedding_norm(self) -> bool:
        """Whether a norm follows the sum of piece and position."""
        return "n" in str(self.values.get("transformer-postprocess-emb", ""))

    @property
    def recurrent(self) -> bool:
        """Whether the decoder has SSRU cells instead of self-attention."""
        return bool(self.values.get("transformer-decoder-autoreg", "self-attention") == "rnn")

    @property
    def activation(self) -> Activation:
        """The activation of feed-forward layers."""
        return ACTIVATIONS[self.values.get("transformer-ffn-activation", "swish")]

    @property
    def alignment_layer(self) -> int | None:
        """The decoder layer, from 0, whose first head was trained to align, or None without guided alignment."""
        if str(self.values.get("guided-alignment", "none")) == "none":
            return None
        layer = self.values.get("transformer-guided-alignment-layer", "last")
        layers = self.integer("dec-depth", 1, 1000)
        return layers - 1 if layer == "last" else self.integer("transformer-guided-alignment-layer", 1, layers) - 1

    def _without_dropout(self, name: str) -> str:
        """Return what is done at one point, without dropout (d)."""
        return str(self.values.get(name, "")).replace("d", "")

    def _problems(self) -> list[str]:
        """Return all options that Lingon has no counterpart of, each with the value that it reads."""
        found = []
        for name, plain in AS_PLAIN.items():
            value = self.values.get(name, plain)
            allowed = PLAIN_DEPTHS if name == "transformer-decoder-ffn-depth" else (plain,)
            if value not in allowed:
                found.append(f"{name} must be {_shown(plain)}, is {_shown(value)}")
        around = "transformer-preprocess", "transformer-postprocess"
        if tuple(map(self._without_dropout, around)) not in NORMS:
            is_now = " and ".join(_shown(str(self.values.get(name, ""))) for name in around)
            found.append(f"{' and '.join(around)} must be '' and 'dan', 'n' and 'da', or 'n' and 'dan', are {is_now}")
        if self._without_dropout("transformer-postprocess-top") not in FINAL_NORMS:
            found += self._not_among("transformer-postprocess-top", FINAL_NORMS, "")
        found += self._not_among("transformer-postprocess-emb", FOLLOWED, "")
        found += self._not_among("transformer-ffn-activation", tuple(ACTIVATIONS), "swish")
        found += self._not_among("transformer-decoder-autoreg", ("self-attention", "rnn"), "self-attention")
        if self.recurrent:
            found += self._not_among("dec-cell", ("ssru",), "gru")
        width = self.values.get("transformer-decoder-dim-ffn", 0)
        if width not in (0, self.values.get("transformer-dim-ffn")):
            found.append(f"transformer-decoder-dim-ffn must be 0 or that of the encoder, is {_shown(width)}")
        return found

    def _not_among(self, name: str, allowed: tuple[str, ...], default: str) -> list[str]:
        value = self.values.get(name, default)
        return [] if value in allowed else [f"{name} must be {' or '.join(map(_shown, allowed))}, is {_shown(value)}"]


class _PlainYamlLoader(SafeLoader):
    """A reader of plain YAML. With aliases, some hundred bytes can stand for gigabytes."""

    _nested = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self.check_event(AliasEvent):
            raise YAMLError("has an alias")
        if self._nested > MOST_NESTED:
            raise YAMLError("is nested too deeply")
        self._nested += 1
        node: Node | None = super().compose_node(parent, index)
        self._nested -= 1
        return node


def read_yaml(path: Path, text: str) -> dict[str, Any]:
    """Read a YAML object. Raises SourceModelError, for one with aliases too."""
    try:
        found = _PlainYamlLoader(text).get_single_data()
    except (YAMLError, ValueError, RecursionError):
        raise SourceModelError(f"{path}: its options are not plain YAML") from None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise SourceModelError(f"{path}: its options must be names with values")
    return found


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, str | int | float | bool) or value == [] else type(value).__name__


# The two files that Marian saves a model in: a NumPy archive, or a binary file, whose matrices may be 8-bit integers.
# Both hold the options of the model, in YAML, beside the tensors. A matrix is (in, out), a vector is (1, n).

OPTIONS = "special:model.yml"
EMBEDDING = "Wemb"  # in the names of the tables of pieces
VERSION = 1
FLOAT32, FLOAT16, INT8 = 0x0404, 0x0402, 0x0101
INTGEMM8 = (0x4101, 0x10001)  # in browsermt/marian-dev and in marian-nmt/marian-dev
MOST_ITEMS, MOST_DIMENSIONS, MOST_NAME = 100_000, 8, 1024
MOST_UNPACKED = 8 * 2**30  # bytes of a model that is compressed
ALIGNMENT = 256  # bytes, of the first array of a file that is written
MOST_SHOWN = 100  # characters of an error of zipfile, which repeats the bytes that are damaged

Bytes = NDArray[np.uint8]
_NOT_AN_ARCHIVE = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
)


def open_model(path: Path) -> tuple[Tensors, str]:
    """Open a file NAME.npz, NAME.bin or NAME.bin.gz, and return its tensors and the text of its options.

    Raises SourceModelError.
    """
    readers, options = _archive(path) if path.name.endswith(".npz") else _binary(path)
    if options is None:
        raise SourceModelError(f"{path}: has no {OPTIONS}, the options of the model")
    try:
        return Tensors(path, readers), options.rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError:
        raise SourceModelError(f"{path}: {OPTIONS} must be UTF-8") from None


def unpacked(path: Path, most: int = MOST_UNPACKED) -> Bytes:
    """Return the content of a file, which may be compressed by gzip, as read-only bytes. Raises SourceModelError."""
    try:
        if path.suffix != ".gz":
            return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        most = min(most, most_unpacked(path))
        with gzip.open(path) as opened:
            content = opened.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceModelError(f"{path}: cannot be read ({error})") from None
    if len(content) > most:
        raise SourceModelError(f"{path}: must have at most {most:,} bytes when unpacked")
    return np.frombuffer(content, np.uint8)


def _archive(path: Path) -> tuple[dict[str, Callable[[], Tensor]], bytes | None]:
    """Read the names of an archive, which stays open as long as a reader of its tensors is there.

    To open it again for each tensor would take the square of their number.
    """
    try:
        archive = zipfile.ZipFile(path)
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
        if len(sizes) > MOST_ITEMS:
            raise SourceModelError(f"{path}: must have at most {MOST_ITEMS:,} arrays, has {len(sizes):,}")
        size, most = sum(sizes.values()), min(MOST_UNPACKED, most_unpacked(path))
        if size > most:
            raise SourceModelError(f"{path}: must have at most {most:,} bytes when unpacked, has {size:,}")
        options = None
        if OPTIONS in sizes:
            _check_options(path, sizes.pop(OPTIONS))
            options = _numbers(archive, OPTIONS).tobytes()
    except _NOT_AN_ARCHIVE as error:
        raise SourceModelError(f"{path}: not a NumPy archive ({str(error)[:MOST_SHOWN]})") from None
    return {name: partial(_array, path, archive, name) for name in sizes}, options


def _numbers(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as opened:
        found: NDArray[Any] = np.lib.format.read_array(opened)  # which reads no pickle
        return found


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> Tensor:
    try:
        return torch.from_numpy(_numbers(archive, name))
    except (*_NOT_AN_ARCHIVE, TypeError) as error:
        raise SourceModelError(f"{path}: {name} cannot be read ({str(error)[:MOST_SHOWN]})") from None


def _check_options(path: Path, size: int) -> None:
    if size > MOST_OPTIONS:
        raise SourceModelError(f"{path}: {OPTIONS} must have at most {MOST_OPTIONS:,} bytes, has {size:,}")


@dataclass(frozen=True, slots=True)
class _Item:
    """An array of a binary file: its data begin at `start`, and are `size` bytes."""

    name: str
    kind: int
    shape: tuple[int, ...]
    start: int
    size: int


class _BinaryCursor:
    """A reader of a binary file from its beginning. What is beyond its end is an error."""

    def __init__(self, path: Path, content: Bytes) -> None:
        self.path, self.content, self.position = path, content, 0

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes."""
        return self.content[self.skip(count, what) : self.position].tobytes()

    def skip(self, count: int, what: str) -> int:
        """Return the position of the next bytes, and go on behind them."""
        begin = self.position
        if count > len(self.content) - begin:
            raise SourceModelError(
                f"{self.path}: ends within {what}: {count:,} bytes at {begin:,}, the file has {len(self.content):,}"
            )
        self.position += count
        return begin

    def numbers(self, count: int, what: str) -> tuple[int, ...]:
        """Return the next unsigned 64-bit numbers."""
        return struct.unpack(f"<{count}Q", self.take(8 * count, what))


def _binary(path: Path) -> tuple[dict[str, Callable[[], Tensor]], bytes | None]:
    content = unpacked(path)
    items = _items(path, content)
    if (twice := first_twice([item.name for item in items])) is not None:
        raise SourceModelError(f"{path}: has {twice} twice")
    options = next((content[i.start : i.start + i.size].tobytes() for i in items if i.name == OPTIONS), None)
    _check_options(path, len(options or b""))
    return {item.name: _reader(path, content, item) for item in items if item.name != OPTIONS}, options


def _items(path: Path, content: Bytes) -> list[_Item]:
    """Return the arrays of a binary file, as its head lists them."""
    cursor = _BinaryCursor(path, content)
    version, count = cursor.numbers(2, "the head")
    if version != VERSION:
        raise SourceModelError(f"{path}: the version of the format must be {VERSION}, is {version:,}")
    if count > MOST_ITEMS:
        raise SourceModelError(f"{path}: must have at most {MOST_ITEMS:,} arrays, has {count:,}")
    heads = [cursor.numbers(4, "the head") for _ in range(count)]
    names = [_name(cursor, length) for length, *_ in heads]
    shapes = [_shape(cursor, dimensions, name) for (_, _, dimensions, _), name in zip(heads, names, strict=True)]
    (padding,) = cursor.numbers(1, "the head")
    cursor.skip(padding, "the padding after the head")
    return [
        _Item(name, kind, shape, cursor.skip(size, name), size)
        for (_, kind, _, size), name, shape in zip(heads, names, shapes, strict=True)
    ]


def _name(cursor: _BinaryCursor, length: int) -> str:
    if not 1 <= length <= MOST_NAME:
        raise SourceModelError(f"{cursor.path}: the length of a name must be 1 to {MOST_NAME:,}, is {length:,}")
    try:
        return cursor.take(length, "the names").rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError:
        raise SourceModelError(f"{cursor.path}: the name of an array must be UTF-8") from None


def _shape(cursor: _BinaryCursor, dimensions: int, name: str) -> tuple[int, ...]:
    if dimensions > MOST_DIMENSIONS:
        raise SourceModelError(
            f"{cursor.path}: {name} must have at most {MOST_DIMENSIONS} dimensions, has {dimensions:,}"
        )
    shape = struct.unpack(f"<{dimensions}i", cursor.take(4 * dimensions, "the shapes"))
    if any(size < 0 for size in shape):
        raise SourceModelError(f"{cursor.path}: {name} has a negative size: {shape}")
    return shape


def _reader(path: Path, content: Bytes, item: _Item) -> Callable[[], Tensor]:
    """Return what reads an array as float32 (in, out)."""
    sizes = {FLOAT32: 4, FLOAT16: 2, INT8: 1, **dict.fromkeys(INTGEMM8, 1)}
    if item.kind not in sizes:
        raise SourceModelError(
            f"{path}: {item.name} has the type 0x{item.kind:x}; Lingon reads float32, float16 and intgemm8, not the "
            "types whose layout is that of one processor"
        )
    count = math.prod(item.shape)
    needed = count * sizes[item.kind] + (4 if item.kind in INTGEMM8 and count else 0)
    if item.size < needed:
        raise SourceModelError(f"{path}: {item.name} of shape {item.shape} needs {needed:,} bytes, has {item.size:,}")
    data = content[item.start : item.start + needed]

    def floats() -> Tensor:
        plain: NDArray[Any] = np.frombuffer(data, np.float32 if item.kind == FLOAT32 else np.float16)
        return torch.from_numpy(plain.reshape(item.shape).astype(np.float32))

    def integers() -> Tensor:
        return torch.from_numpy(np.frombuffer(data, np.int8).reshape(item.shape).copy())

    def quantised() -> Tensor:
        return _dequantised(path, item, data)

    return quantised if item.kind in INTGEMM8 else integers if item.kind == INT8 else floats


def _dequantised(path: Path, item: _Item, data: Bytes) -> Tensor:
    """Return the values of 8-bit integers, which are those times one number for the whole matrix.

    All matrices but tables of pieces are saved as (out, in).
    """
    if not math.prod(item.shape):
        return torch.empty(item.shape)
    scale = float(np.frombuffer(data[-4:].tobytes(), np.float32)[0])
    if not (math.isfinite(scale) and scale > 0):
        raise SourceModelError(f"{path}: the scale of {item.name} must be above 0, is {scale}")
    if len(item.shape) != 2:
        raise SourceModelError(f"{path}: {item.name} must have 2 dimensions, has {len(item.shape)}")
    values = torch.from_numpy(np.frombuffer(data[:-4].tobytes(), np.int8).astype(np.float32) / np.float32(scale))
    rows, columns = item.shape
    return values.view(rows, columns) if EMBEDDING in item.name else values.view(columns, rows).T


def binary_file(items: Sequence[tuple[str, int, tuple[int, ...], bytes]]) -> bytes:
    """Return a binary file of arrays: the name, type, shape and content of each."""
    heads = b"".join(struct.pack("<4Q", len(n.encode()) + 1, kind, len(s), len(data)) for n, kind, s, data in items)
    names = b"".join(name.encode() + b"\0" for name, *_ in items)
    shapes = b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    head = struct.pack("<2Q", VERSION, len(items)) + heads + names + shapes
    padding = -(len(head) + 8) % ALIGNMENT
    return b"".join([head, struct.pack("<Q", padding), b"\0" * padding, *(data for *_, data in items)])


def integer_scales(path: Path) -> dict[str, float]:
    """Return what the values of each 8-bit matrix of a binary file were multiplied by. Raises SourceModelError."""
    content = unpacked(path)
    items = [item for item in _items(path, content) if item.kind in INTGEMM8 and 0 not in item.shape]
    ends = [item.start + math.prod(item.shape) for item in items]
    return {
        item.name: struct.unpack("<f", content[end : end + 4].tobytes())[0]
        for item, end in zip(items, ends, strict=True)
    }


def with_values(path: Path, name: str, places: Sequence[int], value: float) -> bytes:
    """Return a binary file in which a float32 array has a value at these places. One without the array is unchanged.

    Raises SourceModelError.
    """
    content = unpacked(path)
    changed = content.copy()
    for item in _items(path, content):
        if item.name == name and item.kind == FLOAT32:
            changed[item.start : item.start + 4 * math.prod(item.shape)].view(np.float32)[list(places)] = value
    return changed.tobytes()


# The vocabularies of Marian: a dictionary of pieces, or a sentencepiece model whose ids are those of the model.

ENDS, UNKNOWNS = ("</s>", "eos"), ("<unk>", "UNK")  # names of the special pieces; the second ones are of Nematus
MOST_PIECES = 2**20
MOST_DIGITS = 18  # of an id
CONTROL_BYTES = frozenset(f"<0x{value:02X}>" for value in range(32))  # which Marian never generates

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_SHORT = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b"} | {
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}


@dataclass(frozen=True, slots=True)
class MarianVocabulary:
    """A vocabulary in the order of its ids.

    eos, unk: the ids of the end token and of the unknown piece
    segmenter: the sentencepiece model whose ids these are, or None for a dictionary
    """

    path: Path
    pieces: list[str]
    eos: int
    unk: int
    segmenter: ModelProto | None = None

    @property
    def codes(self) -> set[str]:
        """The codes of target languages, such as >>deu<<."""
        return {piece for piece in self.pieces if piece.startswith(">>") and piece.endswith("<<")}


def read_vocabulary(path: Path) -> MarianVocabulary:
    """Read a file NAME.spm, NAME.json, NAME.yml or NAME.yaml, or one of these with .gz. Raises SourceModelError."""
    content = unpacked(path, MOST_JSON_BYTES)
    if len(content) > MOST_JSON_BYTES:
        raise SourceModelError(f"{path}: must have at most {MOST_JSON_BYTES:,} bytes, has {len(content):,}")
    if path.name.removesuffix(".gz").endswith(".spm"):
        return _of_segmenter(path, read_model(content.tobytes(), str(path)))
    try:
        text = content.tobytes().decode("utf-8")
    except UnicodeDecodeError:
        raise SourceModelError(f"{path}: must be UTF-8") from None
    pieces = _ordered(path, _json(path, text) if text.lstrip().startswith("{") else _yaml(path, text))
    eos, unk = (_id_of(path, pieces, names) for names in (ENDS, UNKNOWNS))
    return MarianVocabulary(path, pieces, eos, unk)


def _of_segmenter(path: Path, model: ModelProto) -> MarianVocabulary:
    pieces = [piece.piece for piece in model.pieces]
    unknown = [number for number, piece in enumerate(model.pieces) if piece.type == ModelPiece.UNKNOWN]
    eos = model.trainer_spec.eos_id
    if len(unknown) != 1 or not 0 <= eos < len(pieces):
        raise SourceModelError(f"{path}: must have an end token and one unknown piece")
    return MarianVocabulary(path, pieces, eos, unknown[0], model)


def _json(path: Path, text: str) -> list[tuple[str, int]]:
    try:
        found = parse_json(text)
    except ValueError:
        raise SourceModelError(f"{path}: not JSON") from None
    if wrong := [piece for piece, number in found.items() if type(number) is not int][:1]:
        raise SourceModelError(
            f"{path}: the id of {wrong[0][:60]!r} must be a whole number, is {shown(found[wrong[0]])}"
        )
    return list(found.items())


def _yaml(path: Path, text: str) -> list[tuple[str, int]]:
    """Read a dictionary line by line.

    A library for YAML refuses characters that published dictionaries have, and reads `null` and `1.0` as values.
    """
    found, pending = [], ""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r")
        if not line.strip() or line in ("---", "..."):
            continue
        if line.startswith("? "):  # a long key; its value is in the next line
            pending = line[2:]
            continue
        key, _, digits = (pending + line).rpartition(":")
        key, digits = key.rstrip(), digits.strip()
        if not key or key[0].isspace() or not digits.isdecimal() or len(digits) > MOST_DIGITS:
            raise SourceModelError(f"{path}: line {number} must be a piece, a colon and its id, is {line[:60]!r}")
        found.append((_unquoted(path, number, key), int(digits)))
        pending = ""
    return found


def _unquoted(path: Path, number: int, key: str) -> str:
    """Return the text of a key, which may be in quotation marks."""
    if len(key) < 2 or key[0] not in "\"'" or key[-1] != key[0]:
        return key
    if key[0] == "'":
        return key[1:-1].replace("''", "'")

    def character(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        text = chr(int(code, 16)) if code else _SHORT.get(found[4], found[4])
        text.encode("utf-8")  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
        return text

    try:
        return _ESCAPE.sub(character, key[1:-1])
    except (ValueError, OverflowError):  # also beyond the last character of Unicode
        raise SourceModelError(f"{path}: line {number} has an escape that is no character: {key[:60]}") from None


def _ordered(path: Path, found: list[tuple[str, int]]) -> list[str]:
    """Return the pieces in the order of their ids. An id that has no piece gets a name that no text has."""
    most = max((number for _, number in found), default=-1) + 1
    if not 1 <= most <= MOST_PIECES:
        raise SourceModelError(f"{path}: must have 1 to {MOST_PIECES:,} pieces, has {most:,}")
    pieces: list[str | None] = [None] * most
    for piece, number in found:
        if number < 0 or pieces[number] is not None:
            raise SourceModelError(f"{path}: {piece!r} and {pieces[number]!r} both have the id {number}")
        pieces[number] = piece
    ids: dict[str, int] = {}
    for piece, number in found:
        if ids.setdefault(piece, number) != number:
            raise SourceModelError(f"{path}: {piece!r} has the ids {ids[piece]} and {number}")
    return [spare(number) if piece is None else piece for number, piece in enumerate(pieces)]


def spare(number: int) -> str:
    """Return the name of an id that has no piece."""
    return f"<spare {number}>"


def _id_of(path: Path, pieces: list[str], names: tuple[str, ...]) -> int:
    for name in names:
        if name in pieces:
            return pieces.index(name)
    raise SourceModelError(f"{path}: has no piece {' or '.join(names)}")


# The lexical shortlists of Marian: the likely target pieces of each source piece, as text or as a binary file.
# Marian unites the sets of all sentences of a batch, and fills up to a multiple of 8. Here every sentence has its own.

MAGIC = 0xF11A48D5013417F5
HEAD = struct.Struct("<6Q")  # magic, checksum, frequent, best, offsets, ids
FREQUENT = BEST = 100  # of a text whose numbers nothing says, as in Marian
MOST_BYTES = 2**28
SOURCE_NULL = "NULL"  # the empty word of a lexicon


@dataclass(frozen=True, slots=True)
class Lists:
    """Target rows of each source row of a checkpoint.

    frequent: the number of first target rows, which every sentence may use
    """

    frequent: int
    rows: Sequence[Sequence[int] | NDArray[np.uint32]]


def read_lexicon(path: Path, source: Numbering, target: Numbering, rows: tuple[int, int], *, shared: bool) -> Shortlist:
    """Read a file. Raises SourceModelError.

    rows: the number of rows of the source and target tables
    shared: whether a target may have every piece of its source
    """
    content = unpacked(path, MOST_BYTES)
    if len(content) > MOST_BYTES:
        raise SourceModelError(f"{path}: must have at most {MOST_BYTES:,} bytes, has {len(content):,}")
    is_binary = len(content) >= 8 and int.from_bytes(content[:8].tobytes(), "little") == MAGIC
    lists = _binary_lexicon(path, content, rows) if is_binary else _text_lexicon(path, content, source, target)
    return _shortlist(lists, source, target, shared=shared)


def _binary_lexicon(path: Path, content: Bytes, rows: tuple[int, int]) -> Lists:
    if len(content) < HEAD.size:
        raise SourceModelError(f"{path}: must have {HEAD.size} bytes or more, has {len(content)}")
    _, checksum, frequent, _, offsets, ids = HEAD.unpack(content[: HEAD.size].tobytes())
    expected = HEAD.size + 8 * offsets + 4 * ids
    if offsets < 1 or len(content) != expected:
        raise SourceModelError(f"{path}: must have {expected:,} bytes by its head, has {len(content):,}")
    body = content[16:].tobytes()
    if (found := lexicon_checksum(body[: len(body) // 8 * 8])) != checksum:
        raise SourceModelError(f"{path}: its checksum is {found:016x}, the file says {checksum:016x}")
    positions = np.frombuffer(body, np.uint64, offsets, HEAD.size - 16).astype(np.int64)
    if positions[0] != 0 or positions[-1] != ids or bool((np.diff(positions) < 0).any()):
        raise SourceModelError(f"{path}: its offsets must rise from 0 to {ids:,}")
    pieces = np.frombuffer(body, np.uint32, ids, HEAD.size - 16 + 8 * offsets)
    if offsets - 1 > rows[0] or int(pieces.max(initial=0)) >= rows[1]:
        raise SourceModelError(
            f"{path}: must be of a source vocabulary of {rows[0]:,} and a target vocabulary of {rows[1]:,} pieces, has "
            f"{offsets - 1:,} source pieces and the target id {int(pieces.max(initial=0)):,}"
        )
    return Lists(frequent, [pieces[begin:end] for begin, end in pairwise(positions)])


def lexicon_checksum(content: bytes) -> int:
    """Return the hash of 64-bit numbers, which combines them as Boost does."""
    seed, mask = 0, 2**64 - 1
    for number in np.frombuffer(content, np.uint64).tolist():
        seed ^= (number + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & mask
    return seed


def _text_lexicon(path: Path, content: Bytes, source: Numbering, target: Numbering) -> Lists:
    """Read lines with a target piece, a source piece and the probability of the target piece."""
    try:
        lines = content.tobytes().decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise SourceModelError(f"{path}: must be UTF-8") from None
    of_source, of_target = _rows(source), _rows(target)
    found: dict[int, list[tuple[float, int]]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            target_piece, source_piece, probability = line.split()
            weight = float(probability)
        except ValueError:
            raise SourceModelError(
                f"{path}: line {number} must be a target piece, a source piece and a number, is {line[:60]!r}"
            ) from None
        if SOURCE_NULL not in (target_piece, source_piece) and source_piece in of_source and target_piece in of_target:
            found.setdefault(of_source[source_piece], []).append((-weight, of_target[target_piece]))
    if not found:
        raise SourceModelError(f"{path}: has no line with a target piece and a source piece of the model")
    frequent, best = _numbers_of(path)
    rows = [[row for _, row in sorted(found.get(each, []))[:best]] for each in range(max(source.rows) + 1)]
    return Lists(frequent, rows)


def _rows(numbering: Numbering) -> dict[str, int]:
    """Return the row of each piece, as the vocabulary of the checkpoint writes it."""
    return dict(zip(numbering.written or numbering.pieces, numbering.rows, strict=True))


def _numbers_of(path: Path) -> tuple[int, int]:
    """Return the numbers of frequent and of best pieces that a name such as lex.50.50.ende.s2t says."""
    numbers = [int(part) for part in path.name.split(".")[1:3] if part.isdigit() and len(part) < 7]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (FREQUENT, BEST)


def _shortlist(lists: Lists, source: Numbering, target: Numbering, *, shared: bool) -> Shortlist:
    """Return the shortlist in the ids of Lingon."""
    silent = {*FORBIDDEN, *target.never}
    new_ids = {row: new for new, row in enumerate(target.rows) if new not in silent}
    always = sorted({EOS, *_known(range(min(lists.frequent, len(target.rows))), new_ids)})
    everywhere, offsets, pieces = set(always), [0], list[int]()
    for row in source.rows:
        found = set(_known(lists.rows[row], new_ids)) if row < len(lists.rows) else set[int]()
        if shared and row in new_ids:
            found.add(new_ids[row])
        pieces += sorted(found - everywhere)
        offsets.append(len(pieces))
    return Shortlist(np.array(always, np.int32), np.array(offsets, np.int32), np.array(pieces, np.int32))


def _known(rows: Iterable[int], new_ids: dict[int, int]) -> Iterable[int]:
    return (new_ids[row] for row in map(int, rows) if row in new_ids)


# Which files of a folder are those of a model of Marian, and what decoder.yml and metadata.json say.

METADATA = "metadata.json"  # of the students of Firefox
SHARED_NAMES = ("vocab.*.spm", "vocab.*.spm.gz", "vocab.spm", "*.vocab.yml", "vocab.yml")
SIDE_NAMES = {
    "source": ("srcvocab.*.spm", "srcvocab.*.spm.gz", "*.src.vocab.yml", "*.src.vocab"),
    "target": ("trgvocab.*.spm", "trgvocab.*.spm.gz", "*.trg.vocab.yml", "*.trg.vocab"),
}
MOST_YAML_FILES = 20  # that are looked into for the options of the decoder
LEXICONS = ("lex.*s2t.bin", "lex.*s2t.bin.gz", "lex.*s2t", "lex.*s2t.gz")
_PAIR = re.compile(r"model\.(?:([a-z]{2})([a-z]{2})|([a-z]{2,3})-([a-z]{2,3}))\..*")


def models_of(folder: Path) -> list[Path]:
    """Return the files of a folder that may hold a model of Marian."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith((".npz", ".bin", ".bin.gz"))
        and not path.name.startswith(("lex.", "pytorch_model", "model.bin"))
        and "optimizer" not in path.name
        and path.is_file()
    )


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """What decoder.yml says of the search; path: None if there is no such file."""

    path: Path | None
    values: dict[str, Any]

    def names(self, option: str) -> list[str]:
        """Return the names of the files of an option, without their folders."""
        value = self.values.get(option, [])
        listed = value if isinstance(value, list) else [value]
        return [Path(str(each)).name for each in listed]

    def number(self, option: str, default: float) -> float:
        """Return a number. The default if the file does not say one."""
        value = self.values.get(option, default)
        return float(value) if isinstance(value, int | float) else default


def read_decoder_options(folder: Path) -> DecoderOptions:
    """Return the options of the file that names models and vocabularies."""
    found = (path for path in sorted(folder.glob("*.yml")) if "vocab" not in path.name)
    for path in islice(found, MOST_YAML_FILES):
        if path.stat().st_size < MOST_OPTIONS:
            values = read_yaml(path, unpacked(path).tobytes().decode("utf-8", "replace"))
            if "models" in values and "vocabs" in values:
                return DecoderOptions(path, values)
    return DecoderOptions(None, {})


def model_file(folder: Path, decoder: DecoderOptions) -> Path:
    """Return the file of the model. Raises SourceModelError unless there is one."""
    named = [folder / name for name in decoder.names("models") if (folder / name).is_file()]
    found = named or models_of(folder)
    if len(found) != 1:
        listed = ", ".join(path.name for path in found[:5])
        raise SourceModelError(f"{folder}: must have one model of Marian, has {len(found)}: {listed}")
    return found[0]


def read_vocabularies(folder: Path, decoder: DecoderOptions) -> tuple[MarianVocabulary, MarianVocabulary]:
    """Return the source and the target vocabulary, one object if it is one file."""
    named = [folder / name for name in decoder.names("vocabs") if (folder / name).is_file()]
    if len(named) not in (1, 2):
        shared = first(folder, SHARED_NAMES)
        found = [shared] if shared else [first(folder, names) for names in SIDE_NAMES.values()]
        named = [path for path in found if path is not None]
        if len(named) != len(found):
            raise SourceModelError(f"{folder}: has no vocabulary: none of {', '.join(SHARED_NAMES)}")
    source = read_vocabulary(named[0])
    return source, source if named[0] == named[-1] else read_vocabulary(named[-1])


def first(folder: Path, patterns: Sequence[str]) -> Path | None:
    """Return the first file that has one of the names."""
    return next((path for pattern in patterns for path in sorted(folder.glob(pattern))), None)


def languages_of(folder: Path, path: Path) -> tuple[str, str]:
    """Return source and target as metadata.json or the name of the model says, else ""."""
    more = JsonFields.read_if_there(folder / METADATA)
    named = more.text("sourceLanguage", ""), more.text("targetLanguage", "")
    if not all(named) and (found := _PAIR.fullmatch(path.name)):
        named = (found[3] or found[1], found[4] or found[2])
    return tuple("" if unmet_rule(Language, name) else name for name in named)  # type: ignore[return-value]
