"""The weights of a model in main memory, which the sessions of all its graphs share.

ONNX Runtime copies weights that it reads from a file or from memory for each session. The shipped model has seven.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

MOST_DIGITS = 20  # of a place in a file
EXTERNAL = 1  # the data_location of weights in a file
WEIGHT_TYPES = {1: np.float32, 3: np.int8, 10: np.float16}
"""The NumPy types of weights, by their number in ONNX."""

FIELDS = {
    "Model": {"graph": (7, "Graph")},
    "Graph": {"initializer": (5, "[Tensor]")},
    "Tensor": {
        "dims": (1, "[int64]"),
        "data_type": (2, "int32"),
        "name": (8, "string"),
        "external_data": (13, "[Entry]"),
        "data_location": (14, "int32"),
    },
    "Entry": {"key": (1, "string"), "value": (2, "string")},
}
"""The messages of ONNX that say where weights are: of each field its number and type, in brackets if repeated.

Protocol buffers skip the fields that are not here. The package `onnx` would take more memory than the weights.
"""


class SharedWeights:
    """The weight files of a model, and the tensors in them that graphs have asked for."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """files: contents by the names that the graphs use."""
        self.files = files
        self._tensors: dict[tuple[object, ...], ort.OrtValue] = {}

    def tensors(self, graph: bytes) -> dict[str, ort.OrtValue]:
        """Return the weights of a graph that are in the files, by name; they must live as long as its sessions.

        Weights that are not where the graph says are left out: ONNX Runtime refuses the graph with its reason.
        """
        model = _MODEL()
        try:
            model.ParseFromString(graph)
        except DecodeError:
            return {}
        found = {each.name: self._tensor(each) for each in model.graph.initializer if each.data_location == EXTERNAL}
        return {name: value for name, value in found.items() if value is not None}

    def _tensor(self, tensor: Any) -> ort.OrtValue | None:
        """Return a tensor of a graph; None if the files do not have it."""
        entries = {each.key: each.value for each in tensor.external_data}
        content, dtype = self.files.get(entries.get("location", "")), WEIGHT_TYPES.get(tensor.data_type)
        offset, size = entries.get("offset", "0"), entries.get("length", "")
        if content is None or dtype is None or not all(map(_is_number, (offset, size))):
            return None
        shape, place = tuple(tensor.dims), int(offset)
        count = math.prod(shape)
        item = np.dtype(dtype).itemsize
        if min(shape, default=1) < 1 or place % item or int(size) != count * item or place + int(size) > len(content):
            return None
        key = entries["location"], place, shape, dtype
        if key not in self._tensors:
            values = np.frombuffer(content, dtype, count, place).reshape(shape)
            self._tensors[key] = ort.OrtValue.ortvalue_from_numpy(values)
        return self._tensors[key]


def _is_number(text: str) -> bool:
    """Whether a place in a file can be meant; Python refuses to read a number of thousands of digits."""
    return text.isdecimal() and len(text) <= MOST_DIGITS


def _message_class(name: str) -> Any:
    """Return the class of a message of FIELDS."""
    file = descriptor_pb2.FileDescriptorProto(name="lingon/onnx_weights.proto", package="lingon.onnx", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in FIELDS.items():
        described = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            kind, repeated = kind.strip("[]"), kind.startswith("[")
            added = described.field.add(name=field, number=number)
            added.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in FIELDS:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".lingon.onnx.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"lingon.onnx.{name}"))


_MODEL = _message_class("Model")
