"""The tensors of a checkpoint by name, read one by one; what nobody takes is named at the end."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lingon.errors import SourceModelError, first_of
from lingon.importers.files.fields import Fields, first_twice, shown
from lingon.importers.files.graphs import graph_files, has_graphs, read_graphs
from lingon.importers.files.pickles import uses_a_tuple_twice

SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
SHARDS = {f"{SAFETENSORS}.index.json": "model-*.safetensors", f"{PICKLED}.index.json": "pytorch_model-*.bin"}
"""The files that name the shards of a checkpoint, and the pattern of the names of these."""

WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What PyTorch puts into the names of tensors for parallel, compiled, sharded and checkpointed modules."""

FileReader = Callable[[Path], dict[str, Callable[[], Tensor]]]
READABLE = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class Tensors:
    """The tensors of a checkpoint.

    taken: the names of those that were taken
    notes: what a user should know about them
    """

    def __init__(self, origin: Path, readers: Mapping[str, Callable[[], Tensor]]) -> None:
        """origin: the file, for messages; readers: by name, what reads a tensor."""
        self.origin, self._readers = origin, readers
        self.taken: set[str] = set()
        self.notes: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def stored(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every tensor with its name, as it is."""
        yield from ((name, read()) for name, read in self._readers.items())

    def rows(self, name: str) -> int:
        """Return the first dimension of a tensor. Raises SourceModelError if it is missing or a single number."""
        shape = self.shape(name)
        if not shape:
            raise SourceModelError(f"{self.origin}: {name} must be a table, is a single number")
        return shape[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises SourceModelError if it is missing."""
        if name not in self._readers:
            raise SourceModelError(f"{self.origin}: has no tensor {name}")
        return tuple(self._readers[name]().shape)

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return a tensor as float32. Raises SourceModelError if it is missing, of another shape, or not finite."""
        if name not in self._readers:
            raise SourceModelError(f"{self.origin}: has no tensor {name}")
        self.taken.add(name)
        tensor = self._readers[name]()
        if tuple(tensor.shape) != tuple(shape):
            raise SourceModelError(f"{self.origin}: {name} must have shape {tuple(shape)}, has {tuple(tensor.shape)}")
        if tensor.dtype not in READABLE:
            raise SourceModelError(f"{self.origin}: {name} must hold floating-point numbers, holds {tensor.dtype}")
        wide = tensor.float()
        if wide.numel() and not all(bool(end.isfinite()) for end in wide.aminmax()):  # without a copy of the tensor
            raise SourceModelError(f"{self.origin}: {name} has values that are not finite")
        return wide

    def take_tied(self, names: Sequence[str], shape: Sequence[int]) -> Tensor:
        """Return a tensor that a file may hold under any of these names: the first one; a note names another one.

        safetensors files have one name of several tied tensors. Several published files have an untrained output matrix
        beside the table that it is tied to.
        """
        name = next((each for each in names if each in self), names[0])
        tensor = self.take(name, shape)
        for other in names:
            if other != name and other in self and not torch.equal(self.take(other, shape), tensor):
                self.notes.append(f"{other} differs from the table that it is tied to, and is not used")
        return tensor

    def check_all_taken(self) -> None:
        """Raise SourceModelError if there is a tensor that nobody took: the model computes something else with it."""
        left = [name for name in self._readers if name not in self.taken]
        if left:
            shown = first_of(left, 3)
            raise SourceModelError(f"{self.origin}: has tensors that this form of model does not use: {shown}")


def open_tensors(folder: Path) -> Tensors:
    """Open model.safetensors or its shards, pytorch_model.bin or its shards, or else ONNX graphs.

    Raises SourceModelError.
    """
    if (path := _tensor_file(folder)) is not None:
        read = _safetensors if path.name.startswith(SAFETENSORS) else _pickled
        return Tensors(path, _unwrapped(path, _sharded(path, read) if path.name in SHARDS else read(path)))
    if has_graphs(folder):
        return Tensors(folder, read_graphs(folder))
    raise SourceModelError(f"{folder}: has neither {SAFETENSORS} nor {PICKLED}")


def _unwrapped(path: Path, readers: Mapping[str, Callable[[], Tensor]]) -> dict[str, Callable[[], Tensor]]:
    """Return the readers by names without the parts of WRAPPERS."""
    names = {name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in readers}
    if (name := first_twice(names.values())) is not None:
        raise SourceModelError(f"{path}: has the tensor {name} under several names of wrapped modules")
    return {names[name]: reader for name, reader in readers.items()}


def tensor_files(folder: Path) -> list[Path]:
    """Return the files that `open_tensors` reads."""
    path = _tensor_file(folder)
    if path is None:
        return graph_files(folder) if has_graphs(folder) else []
    return [path, *(sorted(folder.glob(SHARDS[path.name])) if path.name in SHARDS else [])]


def are_graphs(folder: Path) -> bool:
    """Whether `open_tensors` reads ONNX graphs, because a folder has no other tensors."""
    return has_graphs(folder) and _tensor_file(folder) is None


def _tensor_file(folder: Path) -> Path | None:
    """Return the file of the tensors, or the one that names the shards; safetensors first."""
    names = (name for file in (SAFETENSORS, PICKLED) for name in (file, f"{file}.index.json"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _safetensors(path: Path) -> dict[str, Callable[[], Tensor]]:
    try:
        opened: Any = safe_open(path, framework="pt")
        names = list(opened.keys())
    except (OSError, SafetensorError) as error:
        raise SourceModelError(f"{path}: not a safetensors file ({error})") from None

    def reader(name: str) -> Callable[[], Tensor]:
        return lambda: opened.get_tensor(name)

    return {name: reader(name) for name in names}


def _sharded(index: Path, read: FileReader) -> dict[str, Callable[[], Tensor]]:
    """Read the shards that an index names; read: of one of them."""
    try:
        places = Fields.read(index).values["weight_map"]
        shards = sorted({each for each in places.values() if isinstance(each, str)})
    except (KeyError, AttributeError, TypeError):
        raise SourceModelError(f"{index}: has no weight_map of tensors to files") from None
    outside = [name for name in shards if Path(name).name != name]
    if outside:
        raise SourceModelError(f"{index}: {outside[0]!r} is not the name of a file beside it")
    found: dict[str, Callable[[], Tensor]] = {}
    for name in shards:
        found |= read(index.with_name(name))
    missing = sorted(places.keys() - found.keys())
    if missing:
        raise SourceModelError(f"{index}: {missing[0]} is not in {shown(places[missing[0]])}")
    return found


def _pickled(path: Path) -> dict[str, Callable[[], Tensor]]:
    """Read a pickle of tensors and nothing else: a pickle of other classes can run any code."""
    try:
        if uses_a_tuple_twice(path):
            raise ValueError("a tuple is used twice")
        # PyTorch before 1.6 saved no archive, and such a file cannot be mapped.
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # torch raises many kinds for a file that is none of its own
        # The type alone: torch's message tells how to load such a file nevertheless, which would run its code.
        raise SourceModelError(f"{path}: not a file of tensors alone ({type(error).__name__})") from None
    if not isinstance(loaded, dict) or not all(isinstance(each, Tensor) for each in loaded.values()):
        raise SourceModelError(f"{path}: must hold tensors by name")

    def reader(tensor: Tensor) -> Callable[[], Tensor]:
        return lambda: tensor

    return {str(name): reader(tensor) for name, tensor in loaded.items()}
