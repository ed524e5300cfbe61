"""The file model.bin of CTranslate2, version 6: variables by name, and names that stand for others."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingon.errors import SourceModelError
from lingon.importers.files.tensors import Tensors

VERSION = 6
MOST_VARIABLES, MOST_DIMENSIONS = 100_000, 8
DTYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(kind)
    for number, kind in enumerate((np.float32, np.int8, np.int16, np.int32, np.float16, np.uint16))
}
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
    """The content of a file.

    spec: the kind of model that it declares
    tensors: the arrays by their names and by those that stand for them; integers are read as what they stand for
    scalars: the single numbers; one that is saved as an integer is an int
    names: the variable that each name stands for
    shapes: of the variables
    """

    spec: str
    tensors: Tensors
    scalars: Mapping[str, float]
    names: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]


class _Cursor:
    """Reads a file from its beginning; what is beyond its end is an error."""

    def __init__(self, path: Path, content: NDArray[np.uint8]) -> None:
        self.path, self.content, self.place = path, content, 0

    def skip(self, count: int) -> int:
        """Return the place of the next bytes, and go on behind them."""
        begin, length = self.place, len(self.content)
        if count > length - begin:
            raise SourceModelError(f"{self.path}: ends early: needs {count:,} bytes at {begin:,}, has {length:,}")
        self.place += count
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
    """Read the head of a file; arrays are read when they are asked for. Raises SourceModelError."""
    try:
        content: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise SourceModelError(f"{path}: cannot be read ({error})") from None
    cursor = _Cursor(path, content)
    if (version := cursor.number("I")) != VERSION:
        raise SourceModelError(f"{path}: the version of the format must be {VERSION}, is {version}")
    spec, _ = cursor.text(), cursor.number("I")
    found = dict(_variable(cursor) for _ in range(cursor.count("variables", MOST_VARIABLES)))
    aliases = {cursor.text(): cursor.text() for _ in range(cursor.count("aliases", MOST_VARIABLES))}
    if missing := [name for name in aliases.values() if name not in found][:1]:
        raise SourceModelError(f"{path}: an alias names {missing[0]}, which is not there")
    names = {name: name for name in found} | aliases
    arrays = {name for name, each in found.items() if each.shape and not name.endswith(SCALE)}
    readers = {name: _reader(path, content, found, of) for name, of in names.items() if of in arrays}
    tensors = Tensors(path, readers)
    bits = {DTYPES[found[name].kind].itemsize * 8 for name in arrays if found[name].kind in (1, 2)}
    tensors.notes += [LOSSY.format(each) for each in sorted(bits)]
    scalars = {name: _scalar(content, each) for name, each in found.items() if not each.shape}
    if wrong := next((name for name, value in scalars.items() if not math.isfinite(value)), ""):
        raise SourceModelError(f"{path}: {wrong} must be finite, is {scalars[wrong]}")
    return Variables(spec, tensors, scalars, names, {name: each.shape for name, each in found.items()})


def _variable(cursor: _Cursor) -> tuple[str, Variable]:
    name = cursor.text()
    shape = tuple(cursor.number("I") for _ in range(cursor.count("dimensions", MOST_DIMENSIONS, "B")))
    kind, size = cursor.number("B"), cursor.number("I")
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


def _scalar(content: NDArray[np.uint8], variable: Variable) -> float:
    return _values(content, variable).item()


def _reader(path: Path, content: NDArray[np.uint8], found: Mapping[str, Variable], name: str) -> Callable[[], Tensor]:
    """Return what reads an array; integers are divided by their scale, one for each row or one for all."""
    variable = found[name]

    def read() -> Tensor:
        values = _values(content, variable)
        if values.is_floating_point():
            return values
        if f"{name}{SCALE}" not in found:
            raise SourceModelError(f"{path}: {name} holds integers and has no {name.rpartition('/')[2]}{SCALE}")
        scale = _values(content, found[f"{name}{SCALE}"]).float().flatten()
        if len(scale) not in (1, len(values)) or not bool((scale > 0).all()):
            raise SourceModelError(f"{path}: {name}{SCALE} must be positive numbers, one or one for each row")
        return values.float() / scale.view(-1, *[1] * (values.dim() - 1))

    return read
