"""The header of a file of gettext: its fields, and its lines with some fields of another value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from lingon.documents.gettext.entries import Entry, escaped, string_lines

_CHARSET = re.compile(rb'"?Content-Type:[^\r\n"]{0,200}?\bcharset=([\w.:-]{1,40})', re.IGNORECASE)
_FIELD = re.compile(r"([A-Za-z][\w-]*+)[ \t]*+:[ \t]*+(.*)", re.DOTALL)
HEAD_BYTES = 65_536  # of a file, in which its header is
LANGUAGE, FORMS, TYPE = "Language", "Plural-Forms", "Content-Type"
_NEW = {"MIME-Version": "1.0", TYPE: "text/plain; charset=UTF-8", "Content-Transfer-Encoding": "8bit"}
_SCRIPTS = {"zh-hans": "zh_CN", "zh-hant": "zh_TW", "sr-latn": "sr@latin"}  # as gettext names them


def charset_of(content: bytes) -> str:
    """Return the encoding that the header of a file says; empty if it says none."""
    found = _CHARSET.search(content, 0, HEAD_BYTES)
    return found[1].decode() if found else ""


def fields_of(header: str) -> dict[str, str]:
    """Return the values of fields by their names."""
    found = (_FIELD.fullmatch(line) for line in header.split("\n"))
    return {field[1]: field[2].strip() for field in found if field}


def language_name(tag: str) -> str:
    """Return the name that gettext has for a language, such as pt_BR."""
    return _SCRIPTS.get(tag.lower(), tag.replace("-", "_"))


def header_lines(entry: Entry, lines: Sequence[str], fields: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a header with other values of fields, in the lines that these have, or after the last one.

    The flag fuzzy of a template is left out: msgfmt would leave out the header, which says the encoding.
    """
    end = "\r\n" if lines[entry.start].endswith("\r\n") else "\n"
    for number in range(entry.begin, entry.start):
        flags = entry.flags.get(number)
        if flags is None or "fuzzy" not in flags:
            yield lines[number]
        elif rest := [flag for flag in flags if flag != "fuzzy"]:
            yield f"#, {', '.join(rest)}{end}"
    left, parts = dict(fields), entry.lines["msgstr"]
    if not all(part.endswith("\n") or not part for part in parts):  # fields that go over lines
        values = fields_of(entry.string("msgstr")) | left
        yield from string_lines("msgstr", "".join(f"{name}: {value}\n" for name, value in values.items()), end)
        return
    for number, part in zip(range(entry.start, entry.last), parts, strict=True):
        field = _FIELD.fullmatch(part.removesuffix("\n"))
        if field is None or field[1] not in left or part.count("\n") != 1:
            yield lines[number]
        else:
            written = f'"{escaped(f"{field[1]}: {left.pop(field[1])}")}\\n"{end}'
            yield written if number > entry.start else f'msgstr ""{end}{written}'
    yield from (f'"{escaped(f"{name}: {value}")}\\n"{end}' for name, value in left.items())


def new_header(fields: Mapping[str, str], end: str) -> Iterator[str]:
    """Yield the lines of a header for a file that has none."""
    yield from (f'msgid ""{end}', f'msgstr ""{end}')
    yield from (f'"{escaped(f"{name}: {value}")}\\n"{end}' for name, value in {**fields, **_NEW, **fields}.items())
    yield end
