"""The files of a book that have text: its pages and its table of contents."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from lingon.documents.document import Edit, decoded, edited
from lingon.documents.languages import NO_LANGUAGES, Languages, page_in
from lingon.documents.xml_tree import read_tree
from lingon.html_names import VOID

NCX = "http://www.daisy.org/z3986/2005/ncx/"
_CLOSED = re.compile(r"<(?P<name>[A-Za-z][\w:.-]*+)(?P<rest>(?:\s(?:[^<>/]++|/(?!>))*+)?+)/>")


class Page:
    """A page of a book, which is read as HTML; an element of XHTML that has no end tag gets one."""

    def __init__(self, content: bytes, languages: Languages = NO_LANGUAGES) -> None:
        self._languages = languages
        self.texts = [_CLOSED.sub(_with_end_tag, decoded(content))]

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the page of its translation."""
        return page_in("".join(translations), self._languages).encode()


class Contents:
    """The table of contents of a book (NCX)."""

    def __init__(self, content: bytes) -> None:
        root = read_tree(content, {NCX: "ncx"}, ())
        self._content = content
        waiting = [root]
        self._places: list[tuple[int, int]] = []
        self.texts: list[str] = []
        while waiting:
            each = waiting.pop()
            waiting += list(each.elements)[::-1]
            if each.name == "ncx:text" and any(map(str.isalpha, each.text)):
                self._places.append((each.content, each.content_end))
                self.texts.append(html.escape(each.text, quote=False))

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the table with translations of its texts."""
        texts = (html.escape(html.unescape(each), quote=False).encode() for each in translations)
        places = zip(self._places, texts, strict=True)
        return edited(self._content, (Edit(begin, end, text) for (begin, end), text in places))


def _with_end_tag(tag: re.Match[str]) -> str:
    return tag[0] if tag["name"].lower() in VOID else f"<{tag['name']}{tag['rest']}></{tag['name']}>"
