"""Forms, and the queries of addresses, as fields: their text is UTF-8, percent-encoded or not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from lingon.gateway.requests.problem import Problem

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
MAX_FIELDS = 2000  # of a form
CHARSETS = ("utf-8", "utf8", "us-ascii", "ascii")  # that a form may declare: what is in one of them is UTF-8
SHOWN = 40  # characters of a name or a value in a message
_CHARSET = re.compile(r""";\s*charset\s*=\s*"?([^\s";]*)""", re.IGNORECASE)
_EXTENDED_NAME = re.compile(rb"""filename\*\s*=\s*([\w-]+)'[^']*'([^\s;]+)""", re.IGNORECASE)

Field = tuple[str, str]
File = tuple[str, bytes]
"""The name of a file and its content."""


def read_query(query: bytes) -> list[Field]:
    """Return the fields of a query or of a form that is written as one; raises Problem 400 for text that is no UTF-8.

    Only `&` separates fields, as browsers have it: a `;` is text.
    """
    return [_field(part) for part in query.split(b"&") if part]


def read_form(content_type: str, body: bytes) -> tuple[list[Field], File | None]:
    """Return the fields of a form, and its file; raises Problem 400 for a broken one, 415 for another charset.

    content_type: the header, whose type is URLENCODED or MULTIPART
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
    """Collects the parts of a form of MULTIPART."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.file: File | None = None
        self._name = ""
        self._file_name: str | None = None
        self._header, self._value, self._disposition = b"", b"", b""
        self._content: list[bytes] = []

    def callbacks(self) -> MultipartCallbacks:
        """Return what the parser calls."""
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
    """Return the name of the file of a part; None for a part that is no file.

    `filename*` of RFC 5987 is read although RFC 7578 has no place for it: some clients send nothing else, and .NET
    sends an encoded word as the plain name beside it.
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
    except UnicodeDecodeError:  # curl on Windows sends the bytes of the system; of the name the suffix counts
        return plain.decode("windows-1252", "replace")


def _field(part: bytes) -> Field:
    name, _, value = part.replace(b"+", b" ").partition(b"=")
    shown = _name(unquote_to_bytes(name))
    return shown, _utf8(shown, unquote_to_bytes(value))


def _name(content: bytes) -> str:
    return _decoded("the name of a field", content)


def _utf8(name: str, content: bytes) -> str:
    """Return the text of a field; raises Problem."""
    return _decoded(name[:SHOWN], content, field=name)


def _decoded(what: str, content: bytes, *, field: str = "") -> str:
    """Return content as text; raises Problem 400, which names the first byte that is no UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        found = f"got the byte 0x{content[error.start]:02X} at position {error.start}"
        raise Problem(400, f"{what} must be in UTF-8, {found}", field=field) from None


def _too_many_fields(fields: int) -> Problem:
    return Problem(400, f"a form may have {MAX_FIELDS:,} fields at most, got {fields:,}")
