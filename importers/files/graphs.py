"""The weights in ONNX exports of Transformers, as optimum writes them: an encoder graph and a decoder graph.

The graphs themselves are not used: Lingon exports the model again, with states of fixed names and shapes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from torch import Tensor

from lingon.errors import SourceModelError

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
    """Whether a folder has an ONNX export of an encoder and a decoder, in whatever precision."""
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
    """Whether the encoder has the table of the decoder too, which the file of Transformers has once."""
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
    place = {entry.key: entry.value for entry in tensor.external_data}
    name = place.get("location", "")
    beside = path.parent / name
    if not name or Path(name).name != name or beside.is_symlink() or not beside.is_file():
        raise SourceModelError(f"{path}: the values of {tensor.name} must be in a file beside it, not in {name!r}")
    needed, held = math.prod(tensor.dims) * WIDTHS[tensor.data_type], beside.stat().st_size
    if not 0 <= needed <= held:
        raise SourceModelError(f"{path}: {tensor.name} has {needed:,} bytes, {name} has {held:,}")
