"""The tensors of a checkpoint by name, read one by one. What nobody takes is named at the end."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lingon.errors import SourceModelError, first_of
from lingon.importers.files.fields import JsonFields, first_twice, shown
from lingon.importers.files.pickles import read_pickle

# The weights in ONNX exports of Transformers, as optimum writes them: an encoder graph and a decoder graph.
# The graphs themselves are not used: Lingon exports the model again, with states of fixed names and shapes.

ENCODER = "encoder_model.onnx"
DECODERS = ("decoder_model.onnx", "decoder_model_merged.onnx")  # decoder_with_past_model.onnx lacks weights
STANDARD = ("", "ai.onnx")  # domains of standard operators
QUANTISED = ("DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearMatMul")
ORIGINAL = "import the original weights"
WIDTHS: dict[int, int] = {TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2, TensorProto.BFLOAT16: 2, TensorProto.DOUBLE: 8}
_ANONYMOUS = re.compile(r"onnx::\w+|[/_]?\d+|/.*|.*_output_\d+")  # names that the exporter made up
_MERGED = re.compile(r"_merged_\d+$")  # of a decoder with and one without past in one graph
TensorReader = Callable[[], Tensor]


def has_graphs(folder: Path) -> bool:
    """Return whether a folder has an ONNX export of an encoder and a decoder, in whatever precision."""
    return any(folder.glob("encoder_model*.onnx")) and any(folder.glob("decoder_model*.onnx"))


def graph_files(folder: Path) -> list[Path]:
    """Return the files that are read: the graphs, and the files of their weights where these lie beside them.

    Raises SourceModelError if there are others alone.
    """
    decoders = [folder / name for name in DECODERS if (folder / name).is_file()]
    if not (folder / ENCODER).is_file() or not decoders:
        raise SourceModelError(f"{folder}: has no {ENCODER} with {' or '.join(DECODERS)}: {ORIGINAL}")
    graphs = [folder / ENCODER, decoders[0]]
    beside = [path.with_name(f"{path.name}_data") for path in graphs]
    return graphs + [path for path in beside if path.is_file()]


def read_graphs(folder: Path) -> dict[str, TensorReader]:
    """Return what reads each weight, by its name in Transformers. Raises SourceModelError."""
    encoder, decoder = graph_files(folder)[:2]
    found = _weights(decoder)
    prefix = "model.encoder." if any(name.startswith("model.") for name in found) else "encoder."
    found |= {f"{prefix}{name}": reader for name, reader in _weights(encoder).items()}
    shared = f"{prefix.removesuffix('encoder.')}shared.weight"
    table = found.get(f"{prefix.removesuffix('encoder.')}decoder.embed_tokens.weight")
    if shared not in found and table is not None and _is_only_table(found, prefix, table):
        found[shared] = table
    return found


def _is_only_table(found: dict[str, TensorReader], prefix: str, table: TensorReader) -> bool:
    """Return whether the encoder has the table of the decoder too, which the file of Transformers has once."""
    other = found.get(f"{prefix}embed_tokens.weight")
    return other is not None and torch.equal(other(), table())


def _weights(path: Path) -> dict[str, TensorReader]:
    """Return what reads the weights of a graph by their names; `MatMul` has them transposed and without a name."""
    graph = _load(path).graph
    _check_names(path, graph)
    tensors = {tensor.name: tensor for tensor in _initialisers(graph) if tensor.data_type in WIDTHS}
    for node in _nodes(graph):
        if node.op_type == "Identity":  # equal tensors, which the exporter writes once
            pairs = zip(node.output, node.input, strict=False)
            tensors |= {name: tensors[given] for name, given in pairs if given in tensors}
    found: dict[str, TensorReader] = {}
    for name, tensor in tensors.items():
        if not _ANONYMOUS.fullmatch(_MERGED.sub("", name)):
            found[_MERGED.sub("", name)] = _reader(path, tensor)
    for node in _nodes(graph):
        if node.op_type not in ("", *QUANTISED) and node.domain in STANDARD:
            for name, given, transposed in _named_by(node):
                if given in tensors and name not in found:
                    found[name] = _reader(path, tensors[given], transposed=transposed)
            continue
        raise SourceModelError(f"{path}: is quantised or optimised, with {node.op_type} of {node.name!r}: {ORIGINAL}")
    return found


def _named_by(node: NodeProto) -> Iterator[tuple[str, str, bool]]:
    """Yield name, initialiser and whether it is transposed, for each input that a node's own name names.

    The node /model/decoder/layers.0/fc1/MatMul has the weight of model.decoder.layers.0.fc1.
    """
    module, _, operator = node.name.removeprefix("/").rpartition("/")
    module = module.replace("/", ".")
    if not module or operator != node.op_type:
        return
    if operator == "MatMul":
        yield from ((f"{module}.weight", name, True) for name in node.input[1:2])
    elif operator == "Add":
        yield from ((f"{module}.bias", name, False) for name in node.input)
    elif operator == "LayerNormalization":
        yield from zip((f"{module}.weight", f"{module}.bias"), node.input[1:3], (False, False), strict=False)


def _load(path: Path) -> ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
    except (OSError, DecodeError, ValueError) as error:
        raise SourceModelError(f"{path}: not an ONNX graph ({type(error).__name__})") from None


def _check_names(path: Path, graph: GraphProto) -> None:
    """Raise SourceModelError if a name is not UTF-8: the library returns it as bytes."""
    names: list[object] = [
        name for node in _nodes(graph) for name in (node.name, node.op_type, node.domain, *node.input)
    ]
    names += [tensor.name for tensor in _initialisers(graph)]
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise SourceModelError(f"{path}: the name {wrong!r} is not UTF-8")


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for inner in _inner(node):
            yield from _nodes(inner)


def _initialisers(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield the initialisers of a graph and of the graphs inside it."""
    yield from graph.initializer
    for node in graph.node:
        for inner in _inner(node):
            yield from _initialisers(inner)


def _inner(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g


def _reader(path: Path, tensor: TensorProto, *, transposed: bool = False) -> TensorReader:
    """Return what reads an initialiser when it is needed. It raises SourceModelError."""

    def read() -> Tensor:
        _check_size(path, tensor)
        try:
            values = numpy_helper.to_array(tensor, str(path.parent))
        except Exception as error:  # onnx raises many kinds for a tensor whose parts contradict each other
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise SourceModelError(f"{path}: {tensor.name} cannot be read ({reason})") from None
        if transposed and values.ndim != 2:
            raise SourceModelError(f"{path}: {tensor.name} must be a matrix, has shape {values.shape}")
        wide = values.astype(np.float32, copy=False)
        return torch.from_numpy(np.ascontiguousarray(wide.T if transposed else wide).copy())

    return read


def _check_size(path: Path, tensor: TensorProto) -> None:
    """Raise SourceModelError if the file that holds a tensor is smaller than it, before memory is taken for it."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return
    position = {entry.key: entry.value for entry in tensor.external_data}
    name = position.get("location", "")
    beside = path.parent / name
    if not name or Path(name).name != name or beside.is_symlink() or not beside.is_file():
        raise SourceModelError(f"{path}: the values of {tensor.name} must be in a file beside it, not in {name!r}")
    needed, held = math.prod(tensor.dims) * WIDTHS[tensor.data_type], beside.stat().st_size
    if not 0 <= needed <= held:
        raise SourceModelError(f"{path}: {tensor.name} has {needed:,} bytes, {name} has {held:,}")


SAFETENSORS, PICKLED = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"  # ends the name of the file that names the shards of a checkpoint

WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What PyTorch puts into the names of tensors for parallel, compiled, sharded and checkpointed modules."""

FileReader = Callable[[Path], dict[str, TensorReader]]
READABLE = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class Tensors:
    """The tensors of a checkpoint.

    taken: the names of those that were taken
    notes: what a user should know about them
    """

    def __init__(self, origin: Path, readers: Mapping[str, TensorReader]) -> None:
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
        """Return a tensor that a file may hold under any of these names: the first one. A note names another one.

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
        return Tensors(path, _unwrapped(path, _sharded(path, read) if path.name.endswith(INDEX) else read(path)))
    if has_graphs(folder):
        return Tensors(folder, read_graphs(folder))
    raise SourceModelError(f"{folder}: has neither {SAFETENSORS} nor {PICKLED}")


def open_safetensors(paths: Sequence[Path], origin: Path) -> Tensors:
    """Open files of safetensors that hold the parts of one model; origin: for messages. Raises SourceModelError."""
    if not paths:
        raise SourceModelError(f"{origin}: has no tensors, and no file of safetensors beside it")
    return Tensors(origin, _joined(paths, _safetensors))


def _unwrapped(path: Path, readers: Mapping[str, TensorReader]) -> dict[str, TensorReader]:
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
    return [path, *(_shards(path, _positions(path)) if path.name.endswith(INDEX) else [])]


def are_graphs(folder: Path) -> bool:
    """Return whether `open_tensors` reads ONNX graphs, because a folder has no other tensors."""
    return has_graphs(folder) and _tensor_file(folder) is None


def _tensor_file(folder: Path) -> Path | None:
    """Return the file of the tensors, or the one that names the shards; safetensors first."""
    names = (name for file in (SAFETENSORS, PICKLED) for name in (file, f"{file}{INDEX}"))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _safetensors(path: Path) -> dict[str, TensorReader]:
    try:
        opened: Any = safe_open(path, framework="pt")
        names = list(opened.keys())
    except (OSError, SafetensorError) as error:
        raise SourceModelError(f"{path}: not a safetensors file ({error})") from None

    def reader(name: str) -> TensorReader:
        return lambda: opened.get_tensor(name)

    return {name: reader(name) for name in names}


def _sharded(index: Path, read: FileReader) -> dict[str, TensorReader]:
    """Read the shards that an index names; read: of one of them."""
    positions = _positions(index)
    found = _joined(_shards(index, positions), read)
    missing = sorted(positions.keys() - found.keys())
    if missing:
        raise SourceModelError(f"{index}: {missing[0]} is not in {shown(positions[missing[0]])}")
    return found


def _positions(index: Path) -> dict[str, Any]:
    """Return which shard holds each tensor, as an index says it. Raises SourceModelError."""
    found = JsonFields.read(index).values.get("weight_map")
    if not isinstance(found, dict):
        raise SourceModelError(f"{index}: has no weight_map of tensors to files")
    return found


def _shards(index: Path, positions: Mapping[str, Any]) -> list[Path]:
    """Return the shards of an index. Raises SourceModelError if one of them is no file beside it."""
    names = sorted({each for each in positions.values() if isinstance(each, str)})
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise SourceModelError(f"{index}: {outside[0]!r} is not the name of a file beside it")
    return [index.with_name(name) for name in names]


def _joined(paths: Sequence[Path], read: FileReader) -> dict[str, TensorReader]:
    """Return what reads the tensors of several files. Raises SourceModelError if two of them have the same one."""
    found: dict[str, TensorReader] = {}
    for path in paths:
        part = read(path)
        if twice := found.keys() & part.keys():
            raise SourceModelError(f"{path}: has the tensor {min(twice)}, which a file before it has too")
        found |= part
    return found


def _pickled(path: Path) -> dict[str, TensorReader]:
    """Read a pickle of tensors and nothing else: a pickle of other classes can run any code."""
    loaded = read_pickle(path)
    if not isinstance(loaded, dict) or not all(isinstance(each, Tensor) for each in loaded.values()):
        raise SourceModelError(f"{path}: must hold tensors by name")
    return readers_of(loaded)


def readers_of(tensors: Mapping[Any, Tensor]) -> dict[str, TensorReader]:
    """Return what reads each of these tensors, which a file has mapped or loaded."""

    def reader(tensor: Tensor) -> TensorReader:
        return lambda: tensor

    return {str(name): reader(tensor) for name, tensor in tensors.items()}
