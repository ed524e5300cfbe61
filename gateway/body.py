"""The body of a request: its bytes, within bounds of memory and time, and its fields as JSON, form or query.

Clients use all three formats. Their text is UTF-8, percent-encoded or not.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from lingon.client.connection import block_of
from lingon.gateway.problem import Problem

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

WITHOUT_KEY = ""  # caller; stands for all large bodies that are read before their key is known
RETRY_SECONDS = 0.5  # seconds; after them a body that exceeded the budget may be sent again


class BodyBudget:
    """A bound of the memory of bodies, whatever the number of connections. Belongs to the event loop."""

    def __init__(self, most: int, holders: str = "the bodies of requests") -> None:
        """most: bytes of all bodies, half of them for one caller; holders: name of what holds them, for messages."""
        self._most, self._holders, self.held_bytes = most, holders, 0
        self._by_caller = Counter[str]()
        self.work = set[asyncio.Task[None]]()  # that continues after the reply

    def hold(self, caller: str, size: int) -> None:
        """Count bytes of a caller. Raises Problem 503 if they do not fit."""
        own, most = self._by_caller[caller] + size, self._most // 2
        if own > most:
            whose = "without a key in header or query" if caller == WITHOUT_KEY else "of this address"
            raise _no_room(f"{self._holders} {whose} may hold {most:,} bytes, and {size:,} more come to {own:,}")
        total = self.held_bytes + size
        if total > self._most:
            raise _no_room(f"{self._holders} may hold {self._most:,} bytes, and {size:,} more come to {total:,}")
        self._by_caller[caller], self.held_bytes = own, total

    def release(self, caller: str, size: int) -> None:
        """Free bytes of a caller."""
        self._by_caller[caller] -= size
        self.held_bytes -= size
        if not self._by_caller[caller]:
            del self._by_caller[caller]


def _no_room(message: str) -> Problem:
    return Problem(503, f"{message}; try again", reason="TOO_MANY_CALLS", retry_after=RETRY_SECONDS)


class HeldBody:
    """The bytes of a budget that one body holds, until the last of its users has released it."""

    def __init__(self, budget: BodyBudget, address: str) -> None:
        self._budget, self._caller, self._size, self._users = budget, block_of(address), 0, 1

    def add(self, size: int) -> None:
        """Count bytes that arrived. Raises Problem 503."""
        self._budget.hold(self._caller, size)
        self._size += size

    def count_without_key(self) -> None:
        """Count the body with the others that are read before their key is known. Raises Problem 503."""
        self._budget.hold(WITHOUT_KEY, self._size)
        self._budget.release(self._caller, self._size)
        self._caller = WITHOUT_KEY

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work on the body that continues after the reply. It is a user of the body."""
        task = asyncio.create_task(work)
        self._users += 1
        self._budget.work.add(task)  # the event loop alone would not keep it
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self._budget.work.discard(task)
        self.release()

    def release(self) -> None:
        """Remove a user."""
        self._users -= 1
        if not self._users:
            self._budget.release(self._caller, self._size)


SMALL_BYTES = 65_536  # bytes; a larger body of an unknown caller counts as WITHOUT_KEY, not for its address
BODY_SECONDS = 30.0  # seconds; time limit for a whole body to arrive
MAX_VALUES = 250_000  # texts, numbers, objects and lists of JSON
VALUE_BYTES = 64  # bytes of memory for each value, which may be two bytes of the body
JSON_TYPES = ("application/json", "text/json")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # UTF-8; some programs begin a file with it
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # an unclosed string ends with the body


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The bounds of bodies in bytes: of a plain one, of one with a file, and of all open requests together."""

    plain: int = 4 << 20
    with_file: int = 16 << 20
    together: int = 64 << 20


async def read_body(request: Request, most: int, held: HeldBody, large: Callable[[], None] | None) -> bytes:
    """Return the body. Raises Problem 413 if it has more bytes, 408 if it does not arrive, 415 if it is compressed.

    held: counter of its bytes; large: called when it has more than SMALL_BYTES
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "a compressed body is not accepted; send it without Content-Encoding")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > most:
        raise _too_large(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _too_large(most)
                held.add(len(part))
                parts.append(part)
                if size > SMALL_BYTES and large is not None:
                    large()
                    large = None
    except TimeoutError:
        raise Problem(408, f"the body did not arrive within {BODY_SECONDS:g} seconds") from None
    except ClientDisconnect:
        raise Problem(499, "the client disconnected") from None
    return b"".join(parts)


def _too_large(most: int) -> Problem:
    return Problem(413, f"the body may have {most:,} bytes at most")


def media_type(request: Request) -> str:
    """Return the type of the body without parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse_json(body: bytes) -> dict[str, Any]:
    """Return the object of a JSON body, or an empty one for an empty body."""
    if not body.strip():
        return {}
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Problem(400, "the body must be a JSON object")
    return found


def has_json(request: Request, body: bytes) -> bool:
    """Return whether the fields of a body are read as JSON."""
    kind = media_type(request)
    return kind in JSON_TYPES or kind.endswith("+json") or (not kind and without_mark(body).lstrip()[:1] == b"{")


def without_mark(body: bytes) -> bytes:
    """Return the body of JSON without a byte order mark, which RFC 8259 lets a reader ignore."""
    return body.removeprefix(BYTE_ORDER_MARK)


def count_values(body: bytes, held: HeldBody) -> None:
    """Count the memory that the values of a JSON body will take, before they are parsed.

    Text in strings counts as values, unless the count is then too high. Raises Problem 413 above MAX_VALUES, or 503.
    """
    values = _marks(body)
    if values > MAX_VALUES and (values := _marks(_STRING.sub(b"", body))) > MAX_VALUES:
        raise Problem(413, f"the body may have {MAX_VALUES:,} values at most, got {values:,}")
    held.add(values * VALUE_BYTES)


def _marks(content: bytes) -> int:
    return 1 + sum(content.count(mark) for mark in (b",", b"[", b"{"))


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")


URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
MAX_FIELDS = 2000  # fields of a form
CHARSETS = ("utf-8", "utf8", "us-ascii", "ascii")  # charsets that a form may declare; each is valid UTF-8
SHOWN = 40  # characters of a name or a value in a message
_CHARSET = re.compile(r""";\s*charset\s*=\s*"?([^\s";]*)""", re.IGNORECASE)
_EXTENDED_NAME = re.compile(rb"""filename\*\s*=\s*([\w-]+)'[^']*'([^\s;]+)""", re.IGNORECASE)

Field = tuple[str, str]
File = tuple[str, bytes]
"""The name of a file and its content."""


def read_query(query: bytes) -> list[Field]:
    """Return the fields of a query or of a URL-encoded form. Raises Problem 400 for text that is not UTF-8.

    Only `&` separates fields, as in browsers. A `;` is text.
    """
    return [_field(part) for part in query.split(b"&") if part]


def read_form(content_type: str, body: bytes) -> tuple[list[Field], File | None]:
    """Return the fields of a form, and its file. Raises Problem 400 for an invalid form, 415 for another charset.

    content_type: the header, with the type URLENCODED or MULTIPART
    """
    declared = _CHARSET.search(content_type)
    if declared and declared[1].lower() not in CHARSETS:
        raise Problem(415, f"a form must be in UTF-8, got the charset {declared[1][:SHOWN]!r}")
    if not content_type.lower().lstrip().startswith(MULTIPART):
        if (fields := body.count(b"&") + 1) > MAX_FIELDS:
            raise _too_many_fields(fields)
        return read_query(body), None
    parts = _Parts()
    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not boundary:
        raise Problem(400, "the body is not a form: its Content-Type has no boundary")
    try:
        parser = MultipartParser(boundary, parts.callbacks())
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise Problem(400, f"the body is not a form: {error}") from None
    return parts.fields, parts.file


class _Parts:
    """The parts of a form of MULTIPART."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.file: File | None = None
        self._name = ""
        self._file_name: str | None = None
        self._header, self._value, self._disposition = b"", b"", b""
        self._content: list[bytes] = []

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._on_header_name,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_data,
            "on_part_end": self._end,
        }

    def _begin(self) -> None:
        self._header, self._value, self._disposition, self._content = b"", b"", b"", []

    def _on_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def _on_headers_finished(self) -> None:
        options = parse_options_header(self._disposition)[1]
        if b"name" not in options:
            raise Problem(400, "the body is not a form: a part has no name in its Content-Disposition")
        self._name = _name(options[b"name"])
        self._file_name = _file_name(self._disposition, options.get(b"filename"))
        if self._file_name is not None and self.file is not None:
            raise Problem(400, "a form may have 1 file at most, got 2")
        if self._file_name is None and len(self.fields) >= MAX_FIELDS:
            raise _too_many_fields(MAX_FIELDS + 1)

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        self._content.append(data[start:end])

    def _end(self) -> None:
        content = b"".join(self._content)
        if self._file_name is None:
            self.fields.append((self._name, _utf8(self._name, content)))
        else:
            self.file = self._file_name, content
        self._content = []


def _file_name(disposition: bytes, plain: bytes | None) -> str | None:
    """Return the name of the file of a part, or None for a part without a file.

    RFC 7578 forbids `filename*` of RFC 5987. It is read because some clients send nothing else, and .NET sends an
    encoded word as the plain name.
    """
    extended = _EXTENDED_NAME.search(disposition)
    if extended is not None:
        charset, name = extended[1].decode(), unquote_to_bytes(extended[2])
        if charset.lower() not in (*CHARSETS, "iso-8859-1"):
            raise Problem(400, f"filename* must be in UTF-8 or ISO-8859-1, got the charset {charset[:SHOWN]!r}")
        return name.decode("iso-8859-1") if charset.lower() == "iso-8859-1" else _decoded("filename*", name)
    if plain is None:
        return None
    try:
        return plain.decode()
    except UnicodeDecodeError:  # curl on Windows sends the bytes of the system; only the suffix of the name matters
        return plain.decode("windows-1252", "replace")


def _field(part: bytes) -> Field:
    name, _, value = part.replace(b"+", b" ").partition(b"=")
    shown = _name(unquote_to_bytes(name))
    return shown, _utf8(shown, unquote_to_bytes(value))


def _name(content: bytes) -> str:
    return _decoded("the name of a field", content)


def _utf8(name: str, content: bytes) -> str:
    """Return the text of a field. Raises Problem."""
    return _decoded(name[:SHOWN], content, field=name)


def _decoded(what: str, content: bytes, *, field: str = "") -> str:
    """Return content as text. Raises Problem 400, which names the first byte that is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        found = f"got the byte 0x{content[error.start]:02X} at position {error.start}"
        raise Problem(400, f"{what} must be in UTF-8, {found}", field=field) from None


def _too_many_fields(fields: int) -> Problem:
    return Problem(400, f"a form may have {MAX_FIELDS:,} fields at most, got {fields:,}")


MOST_DIGITS = 9  # digits of a number; Python parses long ones in quadratic time
MAX_OBJECTS = 100  # objects of a field
_NUMBERED = re.compile(r"(\w+)\[([0-9]{1,3})\]\.(\w+)", re.ASCII)


class Fields:
    """The fields of a request by name. A name may occur several times.

    file: the uploaded file and its name, or None without one
    """

    def __init__(self, pairs: Iterable[tuple[str, Any]], file: tuple[str, bytes] | None = None) -> None:
        self._values: dict[str, list[Any]] = {}
        self._lists: set[str] = set()
        for name, value in pairs:
            self._values.setdefault(name, []).extend(value if isinstance(value, list) else [value])
            if isinstance(value, list):
                self._lists.add(name)
        self.file = file

    def __contains__(self, name: str) -> bool:
        return any(value is not None for value in self._values.get(name, ()))

    def check_names(self, names: Sequence[str]) -> None:
        """Raise Problem for a field of another name, which would have no effect."""
        for name in self._values:
            if name not in names:
                raise Problem(400, f"there is no field {name[:40]!r}; the fields are {', '.join(names)}", field=name)

    def text(self, name: str, default: str = "") -> str:
        """Return a field as text, or the default if it is missing or null."""
        found = [value for value in self._values.get(name, ()) if value is not None]
        if not found:
            return default
        return _text(name, found[-1])

    def texts(self, name: str) -> list[str]:
        """Return all values of a field. Raises Problem for a null in a list, since dropping it shifts results."""
        values = self._values.get(name, ())
        if name in self._lists and None in values:
            raise Problem(400, f"{name}[{values.index(None)}] must be text, got null", field=name)
        return [_text(name, value) for value in values if value is not None]

    def is_list(self, name: str) -> bool:
        """Return whether a field is a list, or is repeated."""
        return name in self._lists or len(self._values.get(name, ())) > 1

    def names(self, name: str) -> list[str]:
        """Return the values of a field that is a list, repeated, or separated by commas."""
        return [part.strip() for text in self.texts(name) for part in text.split(",") if part.strip()]

    def objects(self, name: str) -> list[Fields]:
        """Return the objects of a field of JSON, or of a form with fields such as `name[0].part`.

        Raises Problem for another value, for more than MAX_OBJECTS, and for a form that leaves out a number.
        """
        found = []
        for value in self._values.get(name, ()):
            if not isinstance(value, dict):
                raise Problem(400, f"{name} must be an object, got {type(value).__name__}", field=name)
            found.append(Fields(value.items()))
        numbered: dict[int, list[tuple[str, Any]]] = {}
        for key, values in self._values.items():
            parts = _NUMBERED.fullmatch(key)
            if parts is not None and parts[1] == name:
                numbered.setdefault(int(parts[2]), []).extend((parts[3], value) for value in values)
        if sorted(numbered) != list(range(len(numbered))):
            raise Problem(400, f"{name} must be numbered from 0 without gaps", field=name)
        found += [Fields(numbered[number]) for number in sorted(numbered)]
        if len(found) > MAX_OBJECTS:
            raise Problem(400, f"{name} may have {MAX_OBJECTS} objects at most, got {len(found)}", field=name)
        return found

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a field that is a whole number within bounds."""
        text = self.text(name, str(default))
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else -1
        if not least <= value <= most:
            raise Problem(400, f"{name} must be {least} to {most}, got {text[:40]!r}", field=name)
        return value

    def choice(self, name: str, values: Iterable[str], default: str) -> str:
        """Return a field that is one of several values, in any case."""
        text, known = self.text(name, default).lower(), list(values)
        if text not in known:
            named = ", ".join(filter(None, known))  # empty is a field that is missing
            raise Problem(400, f"{name} must be one of {named}, got {text[:40]!r}", field=name)
        return text


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return checked_text(name, value)


def checked_text(name: str, value: Any) -> str:
    """Return a value of JSON that is text. Raises Problem, which names the field, for another one."""
    if not isinstance(value, str):
        raise Problem(400, f"{name} must be text, got {type(value).__name__}", field=name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Problem(400, f"{name} has half of a surrogate pair, which is no character", field=name) from None
    return value


def query_fields(request: Request) -> list[tuple[str, Any]]:
    """Return the fields of the query of a request."""
    return list(read_query(request.scope["query_string"]))


def fields_of(request: Request, body: bytes) -> Fields:
    """Return the fields of the query and of the body.

    A GET may have a form as its body too, because an official client sends one.
    """
    pairs, kind, file = query_fields(request), media_type(request), None
    if not body:
        return Fields(pairs)
    if has_json(request, body):
        pairs += parse_json(body).items()
    elif kind in (URLENCODED, MULTIPART):
        fields, file = read_form(request.headers["content-type"], body)
        pairs += fields
    else:
        raise Problem(415, f"a body of type {kind[:60] or 'unknown'} is not accepted; send JSON or a form")
    return Fields(pairs, file)
