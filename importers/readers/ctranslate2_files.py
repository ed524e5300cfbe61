"""The files of CTranslate2: model.bin with its revisions, and the special tokens of a folder."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingon.errors import SettingsError, SourceModelError
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.tensors import Tensors

# What older models of CTranslate2 call otherwise: variables and numbers.
# A file has two versions: that of its binary form and the revision of the kind of model, which names the variables.

SPECS = {"": 8, "TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 8}
"""The kinds of model that are a Transformer, and the number of heads where the file does not say it."""
TEXTS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
"""Variables that are texts, in older files, and what they are by default."""
FLAGS = ("with_source_bos", "with_source_eos", "with_target_bos", "user_decoder_start_tokens")
"""Numbers that say where special tokens stand, in older files."""
SIDES = ("encoder", "decoder")
_OF_BOTH = ("num_heads", "pre_norm", "activation", "embeddings_merge")
_OF_DECODER = ("alignment_layer", "alignment_heads")
_FIRST_NAMES = (
    ("transformer/", ""),
    (":0", ""),
    ("w_embs", "embeddings/weight"),
    ("kernel", "weight"),
    ("LayerNorm", "layer_norm"),
    ("dense", "projection"),
    ("conv1d_", "linear_"),
    ("conv1d", "linear_0"),
)
"""What the first revision, which has the names of OpenNMT-tf, writes in another way."""
_SOURCE_TABLE = ("encoder/embeddings/weight", "encoder/embeddings_0/weight")
_SCALE = ("/embeddings/multiply_by_sqrt_depth", "/scale_embeddings")
_DEFAULTS = {
    "pre_norm": 1,
    "activation": 0,
    "embeddings_merge": 0,
    "scale_embeddings": 1,
    "alignment_layer": -1,
    "alignment_heads": 1,
    "start_from_zero_embedding": 0,
}
"""What CTranslate2 takes for a number that a file does not have."""


def current_name(name: str, revision: int) -> str:
    """Return the name that the current revision has for a variable."""
    if revision == 1:
        for old, new in _FIRST_NAMES:
            name = name.replace(old, new, 1)
        name = name.replace("masked_multi_head", "self_attention", 1)
        name = name.replace("multi_head", "self_attention" if "encoder" in name else "attention", 1)
    if name.startswith(_SOURCE_TABLE[0]):  # also its scale
        name = name.replace(*_SOURCE_TABLE, 1)
    return name.replace(*_SCALE, 1)


def current_numbers(scalars: Mapping[str, float], spec: str) -> dict[str, float]:
    """Return the numbers of a model, one for each side, without the flags of special tokens."""
    found = {name: value for name, value in scalars.items() if name not in (*_OF_BOTH, *_OF_DECODER, *FLAGS)}
    defaults = {"num_heads": SPECS[spec], **_DEFAULTS}
    for side in SIDES:
        for name in _OF_BOTH if side == "encoder" else (*_OF_BOTH, *_OF_DECODER):
            if name in scalars:
                found.setdefault(f"{side}/{name}", scalars[name])
    for name, value in defaults.items():
        for side in ("decoder",) if name in (*_OF_DECODER, "start_from_zero_embedding") else SIDES:
            found.setdefault(f"{side}/{name}", value)
    return found


# The file model.bin of CTranslate2: variables by name, and names that stand for others.

VERSIONS = range(1, 7)
"""Of the form: since 2 a file names the kind of its model, since 3 it has aliases, since 4 types have numbers."""
LAST_REVISION = 7  # of the kind of model; it changes what the variables are called
MOST_VARIABLES, MOST_DIMENSIONS = 100_000, 8
DTYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(kind)
    for number, kind in enumerate((np.float32, np.int8, np.int16, np.int32, np.float16, np.uint16))
}
TYPES_BY_SIZE = {4: 0, 2: 2, 1: 1}
"""The number of the type of elements of so many bytes, before version 4."""
INT16_SCALE = 1000.0  # of 16-bit integers that are saved without one
BFLOAT16 = 5  # its number; the values are read as 16-bit integers
SCALE = "_scale"  # suffix of what the integers of a weight were multiplied by
LOSSY = "its weights are {}-bit integers, which are less than the model had; the original files are the better source"


@dataclass(frozen=True, slots=True)
class Variable:
    """An array of the file, which begins at `start`."""

    kind: int
    shape: tuple[int, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Variables:
    """The content of a file, by the names of the current revision.

    version: of its form
    spec: the kind of model that it declares
    texts: variables that are texts
    flags: the single numbers as the file has them
    tensors: the arrays by their names and by those that stand for them. Integers are read as what they stand for
    scalars: the numbers of each side; one that is saved as an integer is an int
    names: the variable that each name stands for
    shapes: of the variables
    """

    version: int
    spec: str
    texts: Mapping[str, str]
    flags: Mapping[str, float]
    tensors: Tensors
    scalars: Mapping[str, float]
    names: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]


class _VariableCursor:
    """A reader of a file from its beginning. What is beyond its end is an error."""

    def __init__(self, path: Path, content: NDArray[np.uint8]) -> None:
        self.path, self.content, self.position = path, content, 0

    def skip(self, count: int) -> int:
        """Return the position of the next bytes, and go on behind them."""
        begin, length = self.position, len(self.content)
        if count > length - begin:
            raise SourceModelError(f"{self.path}: ends early: needs {count:,} bytes at {begin:,}, has {length:,}")
        self.position += count
        return begin

    def number(self, form: str) -> int:
        """Return the next number, little-endian."""
        size = struct.calcsize(form)
        begin = self.skip(size)
        return int(struct.unpack(f"<{form}", self.content[begin : begin + size].tobytes())[0])

    def text(self) -> str:
        """Return the next text, which ends with a zero byte."""
        length = self.number("H")
        begin = self.skip(length)
        try:
            return self.content[begin : begin + length].tobytes().rstrip(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            raise SourceModelError(f"{self.path}: a name at {begin:,} is not UTF-8") from None

    def count(self, what: str, most: int, form: str = "I") -> int:
        """Return the next number of things."""
        found = self.number(form)
        if found > most:
            raise SourceModelError(f"{self.path}: must have at most {most:,} {what}, has {found:,}")
        return found


def read_variables(path: Path) -> Variables:
    """Read the head of a file. Arrays are read when they are asked for. Raises SourceModelError."""
    try:
        content: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise SourceModelError(f"{path}: cannot be read ({error})") from None
    cursor = _VariableCursor(path, content)
    if (version := cursor.number("I")) not in VERSIONS:
        raise SourceModelError(f"{path}: the version of the format must be 1 to {VERSIONS[-1]}, is {version}")
    spec, revision = (cursor.text(), cursor.number("I")) if version >= 2 else ("", 1)
    if spec not in SPECS:
        raise SourceModelError(f"{path}: the model must be a {list(SPECS)[-1]}, is a {spec}")
    if not 1 <= revision <= LAST_REVISION:
        raise SourceModelError(f"{path}: the revision of the model must be 1 to {LAST_REVISION}, is {revision}")
    found: dict[str, Variable] = {}
    for _ in range(cursor.count("variables", MOST_VARIABLES)):
        name, variable = _variable(cursor, version)
        found[current_name(name, revision)] = variable
    aliases = dict[str, str]()
    for _ in range(cursor.count("aliases", MOST_VARIABLES) if version >= 3 else 0):
        alias, of = (current_name(cursor.text(), revision) for _ in range(2))
        aliases[alias] = of
    if missing := [name for name in aliases.values() if name not in found][:1]:
        raise SourceModelError(f"{path}: an alias names {missing[0]}, which is not there")
    names = {name: name for name in found} | aliases
    texts = {name: _text(path, content, found.pop(name)) for name in TEXTS if name in found}
    arrays = {name for name, each in found.items() if each.shape and not name.endswith(SCALE)}
    readers = {name: _reader(path, content, found, of) for name, of in names.items() if of in arrays}
    tensors = Tensors(path, readers)
    bits = {DTYPES[found[name].kind].itemsize * 8 for name in arrays if found[name].kind in (1, 2)}
    tensors.notes += [LOSSY.format(each) for each in sorted(bits)]
    scalars = {name: _scalar(content, each) for name, each in found.items() if not each.shape}
    if wrong := next((name for name, value in scalars.items() if not math.isfinite(value)), ""):
        raise SourceModelError(f"{path}: {wrong} must be finite, is {scalars[wrong]}")
    shapes = {name: each.shape for name, each in found.items()}
    return Variables(version, spec, texts, scalars, tensors, current_numbers(scalars, spec), names, shapes)


def _variable(cursor: _VariableCursor, version: int) -> tuple[str, Variable]:
    name = cursor.text()
    shape = tuple(cursor.number("I") for _ in range(cursor.count("dimensions", MOST_DIMENSIONS, "B")))
    kind, size = cursor.number("B"), cursor.number("I")
    if version < 4:  # bytes of an element, and their number
        if kind not in TYPES_BY_SIZE:
            raise SourceModelError(f"{cursor.path}: {name} has elements of {kind} bytes")
        kind, size = TYPES_BY_SIZE[kind], size * kind
    if kind not in DTYPES:
        raise SourceModelError(f"{cursor.path}: {name} has the unknown type {kind}")
    if size != math.prod(shape) * DTYPES[kind].itemsize:
        raise SourceModelError(f"{cursor.path}: {name} of shape {shape} cannot have {size:,} bytes")
    return name, Variable(kind, shape, cursor.skip(size))


def _values(content: NDArray[np.uint8], variable: Variable) -> Tensor:
    """Return the numbers of a variable as they are saved; bfloat16 as float32."""
    dtype = DTYPES[variable.kind]
    size = math.prod(variable.shape) * dtype.itemsize
    values = np.frombuffer(content[variable.start : variable.start + size].tobytes(), dtype).reshape(variable.shape)
    if variable.kind == BFLOAT16:
        return torch.from_numpy((values.astype(np.uint32) << 16).view(np.float32))
    return torch.from_numpy(values.copy())


def _text(path: Path, content: NDArray[np.uint8], variable: Variable) -> str:
    try:
        return _values(content, variable).numpy().tobytes().decode("utf-8")
    except UnicodeDecodeError:
        raise SourceModelError(f"{path}: a special token is not UTF-8") from None


def _scalar(content: NDArray[np.uint8], variable: Variable) -> float:
    return _values(content, variable).item()


def _reader(path: Path, content: NDArray[np.uint8], found: Mapping[str, Variable], name: str) -> Callable[[], Tensor]:
    """Return what reads an array. Integers are divided by their scales: of each row, or one for all."""
    variable = found[name]

    def read() -> Tensor:
        values = _values(content, variable)
        if values.is_floating_point():
            return values
        if f"{name}{SCALE}" not in found and values.dtype == torch.int16:
            return values.float() / INT16_SCALE
        if f"{name}{SCALE}" not in found:
            raise SourceModelError(f"{path}: {name} holds integers and has no {name.rpartition('/')[2]}{SCALE}")
        scale = _values(content, found[f"{name}{SCALE}"]).float().flatten()
        if len(scale) not in (1, len(values)) or not bool((scale > 0).all()):
            raise SourceModelError(f"{path}: {name}{SCALE} must be positive numbers, one or one for each row")
        return values.float() / scale.view(-1, *[1] * (values.dim() - 1))

    return read


# The special tokens of a folder of CTranslate2: which they are, and whether its users end a source with one.
# CTranslate2 adds the end token to a source only if `add_source_eos` is true, as it is for the models of Marian and
# fairseq. Otherwise it reads what it is given. Callers of models of Transformers give it the end token, which the
# tokenizers there write. Callers of models of OpenNMT do not, because these models are trained without one.

CONFIG_SINCE = 6  # the version of model.bin whose special tokens are in config.json
OPENNMT_UNTIL = 3  # the last version of model.bin that the converters of OpenNMT alone wrote
OPENNMT_PADDING = "<blank>"
PADDING = "<pad>"


def special_tokens(config: JsonFields, path: Path, variables: Variables) -> JsonFields:
    """Return the fields of config.json. Those about special tokens are variables of an older model.

    path: of the variables, for messages
    """
    if variables.version >= CONFIG_SINCE:
        return config
    values, flags = {**TEXTS, **variables.texts}, variables.flags
    start: str | None = values["bos_token"] if flags.get("with_target_bos", 1) else values["eos_token"]
    if flags.get("user_decoder_start_tokens", 0):
        start = None
    ends = {f"add_source_{name}": bool(flags.get(f"with_source_{name}", 0)) for name in ("bos", "eos")}
    return JsonFields(path, {**config.values, **values, **ends, "decoder_start_token": start})


def reads_source_end(
    folder: Path,
    config: JsonFields,
    variables: Variables,
    vocabulary: Collection[str],
    *,
    given: bool | None,
    callers: bool | None,
) -> bool:
    """Return whether a source ends with the end token when the users of a folder translate with it.

    vocabulary: of the source
    given: what the user says, or None if nothing
    callers: whether the callers of such a folder are known to write the end token, or not to

    Raises SourceModelError if neither the user nor the files say it, SettingsError if the two contradict each other.
    """
    if config.flag("add_source_eos", False):
        if given is False:
            raise SettingsError(f"{config.path}: add_source_eos is true, so that --no-source-end cannot be right")
        return True
    known = given if given is not None else callers
    found = _by_start(config, variables, vocabulary) if known is None else known
    if found is None:
        raise SourceModelError(
            f"{folder}: its files do not say whether a source ends with {config.text('eos_token', '</s>')}: give "
            "--source-end if its users write it, as for models of Transformers, or --no-source-end if nobody does, as "
            "for models of OpenNMT"
        )
    return found


def _by_start(config: JsonFields, variables: Variables, vocabulary: Collection[str]) -> bool | None:
    """Return whether callers write the end token, by what the decoder starts with, or None if that does not say it.

    The converters from Transformers and fairseq take the end token, the padding, zeros, or what the caller gives. Those
    from OpenNMT take the begin token. OpenNMT calls its padding <blank>, Transformers <pad>.
    """
    start = config.values.get("decoder_start_token", "<s>")
    if start is None or variables.scalars.get("decoder/start_from_zero_embedding", 0):
        return True
    if start == config.text("bos_token", "<s>"):
        is_of_opennmt = variables.version <= OPENNMT_UNTIL or OPENNMT_PADDING in vocabulary
        return False if is_of_opennmt else None
    if start in (config.text("eos_token", "</s>"), PADDING) and OPENNMT_PADDING not in vocabulary:
        return True
    return None
