"""Text files and web pages, and where files say the language of their text.

Readers hyphenate and speak a text by what the file says, and programs check its spelling by it. Only what is said of
the whole file changes, and only if that was the source language: an element in another language stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lingon.documents.document import Document, Edit, edited
from lingon.documents.encodings import read_encoded
from lingon.language_tags import is_same_language, primary
from lingon.segments.markup_tokens import OPEN, attributes_of, html_tokens
from lingon.translation.v1 import translation_pb2 as pb

BEGIN = 65_536  # characters of a page in which the tags are that say its language
_WHOLE = frozenset(["body", "html"])
_LANGUAGES = frozenset(["lang", "xml:lang"])
_ROOT = re.compile(rb"<(?![?!])[^<>]*+>")
_XML_LANGUAGE = re.compile(rb"\sxml:lang\s*+=\s*+([\"'])([^\"'<>]*+)\1")
_OF_BOOK = re.compile(rb"<(?:[\w.-]++:)?+language(?:\s[^<>]*+)?+>\s*+([^<>\s]++)\s*+</")
_OF_WORD = re.compile(rb"<\w++:docDefaults[\s>](?:[^<]++|<(?!/?+\w++:(?:docDefaults|lang)\b))*+(<\w++:lang\b[^<>]*+>)")
_OF_OPEN = re.compile(rb"<style:default-style\b[^<>]*+>(?:[^<]++|<(?!/style:default-style))*+")
_SCRIPTS = {
    **dict.fromkeys(("ja", "ko", "zh"), "eastAsia"),
    **dict.fromkeys(("ar", "fa", "he", "ps", "ur", "yi"), "bidi"),
}


@dataclass(frozen=True, slots=True)
class FileLanguages:
    """What a file is translated from and to, empty for what is not known, and then nothing changes without a target."""

    source: str = ""
    target: str = ""

    def replaces(self, language: str) -> bool:
        """Return whether something that is in a language is in the target language after the translation."""
        return bool(self.target and language) and (not self.source or is_same_language(language, self.source))


NO_LANGUAGES = FileLanguages()


def page_in(page: str, languages: FileLanguages) -> str:
    """Return a page of HTML that says the target language."""
    if not languages.target or "lang" not in page[:BEGIN].lower():
        return page
    positions = _of_page(page[:BEGIN], languages)
    return edited(page, (Edit(begin, end, languages.target) for begin, end in positions))


def _of_page(page: str, languages: FileLanguages) -> Iterator[tuple[int, int]]:
    """Yield the positions of what says the language of a page."""
    for kind, begin, end, name in html_tokens(page):
        if kind == OPEN and name in _WHOLE:
            for each in attributes_of(page, begin, end):
                if each.name.lower() in _LANGUAGES and languages.replaces(page[each.begin : each.end].strip()):
                    yield each.begin, each.end
        if kind == OPEN and name == "body":
            return


def root_in(content: bytes, languages: FileLanguages) -> bytes:
    """Return an XML file whose root says the target language, if it says one."""
    root = _ROOT.search(content)
    found = _XML_LANGUAGE.search(content, *root.span()) if root else None
    return content if found is None else _with(content, found.span(2), languages)


def book_in(content: bytes, languages: FileLanguages) -> bytes:
    """Return the package file of a book that says the target language."""
    found = _OF_BOOK.search(content)
    return root_in(content if found is None else _with(content, found.span(1), languages), languages)


def word_styles_in(content: bytes, languages: FileLanguages) -> bytes:
    """Return the styles of a document of Word, whose text is by default in the target language."""
    defaults = _OF_WORD.search(content)
    if defaults is None:
        return content
    begin, end = defaults.span(1)
    tag = content[begin:end]
    for name in ("val", _SCRIPTS.get(primary(languages.target), "val")):
        if found := re.search(rb"\s\w++:%s\s*+=\s*+\"([^\"]*+)\"" % name.encode(), tag):
            tag = _with(tag, found.span(1), languages if name == "val" else FileLanguages("", languages.target))
    return content[:begin] + tag + content[end:]


def open_styles_in(content: bytes, languages: FileLanguages) -> bytes:
    """Return the styles of a document of OpenDocument, whose text is by default in the target language."""
    language, _, country = languages.target.partition("-")
    country = country if re.fullmatch("[A-Z]{2}", country) else "none"

    def written(style: re.Match[bytes]) -> bytes:
        said = re.search(rb"fo:language=\"([^\"]*+)\"", style[0])
        if said is None or not languages.replaces(said[1].decode(errors="replace")):
            return style[0]
        named = re.sub(rb"(fo:language=\")[^\"]*+", rb"\g<1>" + language.encode(), style[0])
        return re.sub(rb"(fo:country=\")[^\"]*+", rb"\g<1>" + country.encode(), named)

    return _OF_OPEN.sub(written, content) if languages.target else content


def _with(content: bytes, span: tuple[int, int], languages: FileLanguages) -> bytes:
    """Return a file with the target language in a position, if the source language is there."""
    begin, end = span
    if not languages.replaces(content[begin:end].decode(errors="replace").strip()):
        return content
    return content[:begin] + languages.target.encode() + content[end:]


BLOCK_LINES = 64  # lines of a text file that are one text
_CHARSET = re.compile(
    rb"""<(?:meta\b|\?xml\b)[^<>]{0,500}?\b(?:charset|encoding)\s{0,9}=\s{0,9}["']?([\w:.-]{1,40})""", re.IGNORECASE
)
STATED_BYTES = 4096  # of a page, in which it may say its encoding
MOST_LINES = 256  # of a block that would else end within braces


def read_text(content: bytes) -> Document:
    """Return a text file, in blocks of lines whose line breaks stay. Raises UnreadableDocument."""
    text, encoding = read_encoded(content)
    blocks, notes = list(_blocks(text.splitlines(keepends=True))), list[str]()

    def write(translations: Sequence[str]) -> bytes:
        left = iter(translations)
        return encoding.written("".join(next(left) if _has_text(block) else block for block in blocks), notes)

    return Document(list(filter(_has_text, blocks)), pb.TextOptions(), write, notes)


def read_page(content: bytes, languages: FileLanguages = NO_LANGUAGES) -> Document:
    """Return an HTML file, as a whole. Raises UnreadableDocument.

    It is written in the encoding that it has, with references for the characters which that lacks.
    """
    text, encoding = read_encoded(content, charset_of(content))
    notes = list[str]()

    def write(translations: Sequence[str]) -> bytes:
        return encoding.written(page_in("".join(translations), languages), notes, references=True)

    return Document([text], pb.TextOptions(format=pb.TEXT_FORMAT_HTML), write, notes)


def charset_of(content: bytes) -> str:
    """Return the encoding that a page says, empty if it says none."""
    found = _CHARSET.search(content, 0, STATED_BYTES)
    return found[1].decode() if found else ""


def _has_text(block: str) -> bool:
    return bool(block.strip())


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """Yield blocks of lines. None ends within braces, such as those of a message with a plural, unless it is long."""
    block, depth = list[str](), 0
    for line in lines:
        block.append(line)
        depth = max(depth + line.count("{") - line.count("}"), 0)
        if len(block) >= BLOCK_LINES and (depth == 0 or len(block) >= MOST_LINES):
            yield "".join(block)
            block, depth = [], 0
    if block:
        yield "".join(block)
