"""Messages as JSON: what google.protobuf.json_format reads and writes, faster for usual messages.

What is unusual is left to json_format, and with it every error: null, numbers as text, unknown fields, wrong types.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.internal.type_checkers import ToShortestFloat
from google.protobuf.message import Message

MessageT = TypeVar("MessageT", bound=Message)
KNOWN_TYPES = "google.protobuf."  # start of the names of messages that have a JSON of their own
LARGEST = 3.4e38  # of a float, about
WHOLE = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
LONG = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)  # text in JSON
Convert = Callable[[Any], Any]


class _Unusual(Exception):
    """A message that json_format has to read."""


def to_json(message: Message) -> str:
    """Return a message as JSON on one line."""
    return json.dumps(to_dict(message), ensure_ascii=False, separators=(",", ":"))


def to_dict(message: Message) -> dict[str, Any]:
    """Return what json_format.MessageToDict returns."""
    if message.DESCRIPTOR.full_name.startswith(KNOWN_TYPES):
        found: dict[str, Any] = json_format.MessageToDict(message)
        return found
    return _written(message)


def _written(message: Message) -> dict[str, Any]:
    writers = _writers(message.DESCRIPTOR)
    found = {}
    for field, value in message.ListFields():
        name, repeated, convert = writers[field.number]
        if convert is None:
            found[name] = list(value) if repeated else value
        else:
            found[name] = [convert(each) for each in value] if repeated else convert(value)
    return found


@functools.cache
def _writers(descriptor: Descriptor) -> dict[int, tuple[str, bool, Convert | None]]:
    """Return for each field by number: its name in JSON, whether it is repeated, what converts a value."""
    return {field.number: (field.json_name, field.is_repeated, _writer(field)) for field in descriptor.fields}


def _writer(field: FieldDescriptor) -> Convert | None:
    if field.message_type is not None:
        assert not field.message_type.GetOptions().map_entry, "the API has no maps"
        return json_format.MessageToDict if field.message_type.full_name.startswith(KNOWN_TYPES) else _written
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, number)
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return _shortest
    if field.cpp_type in LONG:
        return str
    assert field.type != FieldDescriptor.TYPE_BYTES
    assert field.cpp_type != FieldDescriptor.CPPTYPE_DOUBLE
    return None


def _shortest(value: float) -> float | str:
    """Return the shortest number that is this float; text if it is none."""
    if math.isfinite(value):
        found: float = ToShortestFloat(value)
        return found
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def from_json(body: bytes, message: MessageT) -> MessageT:
    """Fill a new message from JSON and return it; raises what json_format.Parse raises."""
    try:
        _read(json.loads(body, object_pairs_hook=_without_duplicates, parse_constant=_refuse), message)
    except (_Unusual, ValueError, TypeError, RecursionError):
        message.Clear()
        return json_format.Parse(body, message)
    return message


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Unusual
    return found


def _refuse(value: Any) -> None:
    raise _Unusual


def _read(found: Any, message: Message) -> None:
    if type(found) is not dict:
        raise _Unusual
    readers, seen = _readers(message.DESCRIPTOR), set()
    for key, value in found.items():
        reader = readers.get(key)
        if reader is None or reader[0] in seen:
            raise _Unusual
        name, kind, convert = reader
        seen.add(name)
        if kind == "list":
            if type(value) is not list:
                raise _Unusual
            getattr(message, name).extend([convert(each) for each in value])
        elif kind == "messages":
            if type(value) is not list:
                raise _Unusual
            for each in value:
                _read(each, getattr(message, name).add())
        elif kind == "message":
            part = getattr(message, name)
            part.SetInParent()
            _read(value, part)
        else:
            setattr(message, name, convert(value))


@functools.cache
def _readers(descriptor: Descriptor) -> dict[str, tuple[str, str, Convert]]:
    """Return for each name of a field in JSON: its own name, its kind, what checks and converts a value."""
    found: dict[str, tuple[str, str, Convert]] = {}
    convert: Convert
    for field in descriptor.fields:
        shared = field.containing_oneof is not None and len(field.containing_oneof.fields) > 1
        if field.message_type is not None:
            kind, convert = "messages" if field.is_repeated else "message", _refuse
            shared = shared or field.message_type.full_name.startswith(KNOWN_TYPES)
        else:
            kind, convert = "list" if field.is_repeated else "value", _reader(field)
        if not shared:
            found[field.json_name] = found[field.name] = field.name, kind, convert
    return found


def _reader(field: FieldDescriptor) -> Convert:
    if field.enum_type is not None:
        numbers = {value.name: value.number for value in field.enum_type.values}
        return lambda value: numbers[value] if type(value) is str and value in numbers else _refuse(value)
    if field.type == FieldDescriptor.TYPE_STRING:
        return functools.partial(_of_type, str)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return functools.partial(_of_type, bool)
    if field.cpp_type in WHOLE:
        return functools.partial(_of_type, int)
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return _number
    return _refuse


def _of_type(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise _Unusual
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not -LARGEST < value < LARGEST:
        raise _Unusual
    return float(value)
