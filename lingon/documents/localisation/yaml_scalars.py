"""How a translation is written as a scalar of YAML in place of another one, in its style where that can hold it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from lingon.documents.localisation.yaml_tree import Node, is_text, scalar_of

_SAFE = re.compile(
    r"[^\W_](?:[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff:#]++|:(?![\s,\[\]{}]|\Z)|(?<!\s)#)*+(?<!\s)"
)
_IN_FLOW = re.compile(r"[,\[\]{}]")
_CONTROL = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]')
_SIGNS = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_BEYOND = re.compile(r"[^\x00-\x7f]")
_ESCAPES = re.compile(r"\\(?:x[89A-Fa-f]|u(?!00[0-7])|U)[0-9A-Fa-f]")
LEAST_WIDTH = 40  # of the lines of folded text


class ScalarStyle:
    """How the scalars of a file are written: characters beyond ASCII as such, or as escapes in quotation marks.

    end: of its lines
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.end = "\r\n" if "\r\n" in text else "\n"
        self._escapes = text.isascii() and _ESCAPES.search(text) is not None

    def like(self, node: Node) -> Callable[[str], str]:
        """Return what writes a text in place of a scalar."""
        raw = self._text[node.begin : node.end]
        if node.style in ("|", ">"):
            return lambda text: self._block(raw, node.style, text)
        return self.alone(node)

    def alone(self, node: Node) -> Callable[[str], str]:
        """Return what writes a text in the style of a scalar, in one line."""

        def written(text: str) -> str:
            fits = _SAFE.fullmatch(text) is not None and not (node.is_flow and _IN_FLOW.search(text))
            if node.style == "" and fits and is_text(text):
                return text
            if node.style == "'" and not _CONTROL.search(text.replace('"', "").replace("\\", "")):
                return "'" + text.replace("'", "''") + "'"
            return self.quoted(text)

        return written

    def quoted(self, text: str) -> str:
        """Return a text in double quotation marks."""
        text = _CONTROL.sub(lambda found: _SIGNS.get(found[0]) or f"\\u{ord(found[0]):04x}", text)
        return f'"{_BEYOND.sub(_escaped, text) if self._escapes else text}"'

    def _block(self, raw: str, style: str, text: str) -> str:
        """Return a text in lines below a mark, or in quotation marks if it cannot be written so."""
        content = raw.rstrip(" \t\r\n")
        header, _, body = content.partition("\n")
        header = header.removesuffix("\r")
        tail = raw[len(content) :]
        blanks = body.lstrip("\r\n")
        indent = blanks[: len(blanks) - len(blanks.lstrip(" "))]
        lines = text.rstrip("\n").split("\n")
        if style == ">":
            width = max(LEAST_WIDTH, *(len(line.strip()) for line in body.splitlines()), 0)
            lines = "\n\n".join("\n".join(_wrapped(line, width)) for line in lines).split("\n")
        written = self.end.join([header, *(f"{indent}{line}" if line else "" for line in lines)])
        if indent and scalar_of(f"{written}{tail}") == text:
            return f"{written}{tail}"
        return f"{self.quoted(text)}{tail}"


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
