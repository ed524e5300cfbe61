"""Files of XML: the reader of each kind, by the suffix or the root, and that of any other kind.

Of any other file the text of all elements is translated, as that of a text with the format XML, and a note says so. Of
DocBook, DITA and SVG the elements that hold code, names of files, styles or metadata stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from lingon.documents.android import read_android
from lingon.documents.document import Document, UnreadableDocument, check_size, check_tags, decoded, encoded
from lingon.documents.encodings import read_recoded
from lingon.documents.qt_and_resx import read_qt, read_resources
from lingon.documents.tmx import read_memory
from lingon.documents.xliff import read_xliff
from lingon.documents.xml_tree import attributes_of
from lingon.errors import MarkupError
from lingon.segments.markup_tokens import EMPTY, OPEN, xml_tokens
from lingon.translation.v1 import translation_pb2 as pb

MOST_START = 1 << 14  # characters before the content of the root that tell the kind of a file
_FED_BYTES = 1 << 16  # that the parser gets first
_CODE_OF_DOCBOOK = """
    classname code command computeroutput constant email envar errorcode filename function literal literallayout markup
    option parameter programlisting property replaceable screen synopsis systemitem type uri userinput varname
"""
_CODE_OF_DITA = """
    apiname cmdname codeblock codeph filepath kwd msgblock msgnum option parmname screen synph systemoutput userinput
    varname xmlelement xmlatt
"""
_CODE = {"docbook": _CODE_OF_DOCBOOK.split(), "dita": _CODE_OF_DITA.split(), "svg": ["metadata", "script", "style"]}
"""By known kinds of files: the elements whose text stays."""

_SIGNS = {
    "docbook": re.compile(r"//DTD DocBook|[\"']http://docbook\.org/ns/docbook[\"']"),
    "dita": re.compile(r"//DTD DITA|[\"']http://dita\.oasis-open\.org/architecture/2005/[\"']"),
    "svg": re.compile(r"<(?:\w{1,20}:)?svg\s[^<>]*?[\"']http://www\.w3\.org/2000/svg[\"'][^<>]*>\Z"),
}
"""What the document type or the root of a known kind has in it."""


def read_named_xml(suffix: str, content: bytes, target: str = "") -> Document:
    """Return a file of XML whose name has this suffix. See `read_xml`."""
    return read_xml(content, target, suffix[1:])


def read_xml(content: bytes, target: str = "", kind: str = "") -> Document:
    """Return a file of XML in UTF-8. Raises UnreadableDocument.

    target: the language to translate to, empty if it is not known
    kind: a key of _CODE, if the name of the file says it
    """
    check_size(len(content), "the file has")
    root = root_of(content)
    if root == "root" and b"<resheader" in content:
        return read_resources(content)
    readers: dict[str, Callable[[bytes, str], Document]] = {
        "xliff": read_xliff,
        "tmx": read_memory,
        "TS": read_qt,
        "resources": read_android,
    }
    return readers[root](content, target) if root in readers else _read_other(content, target, kind)


def root_of(content: bytes) -> str:
    """Return the name of the root of a file of XML, without a prefix. Raises UnreadableDocument."""
    parser, found = expat.ParserCreate("utf-8"), list[str]()
    parser.StartElementHandler = lambda name, attributes: found.append(name)
    at, size = 0, _FED_BYTES
    try:
        while not found:
            parser.Parse(content[at : at + size], at >= len(content))
            at, size = at + size, 2 * size  # the parser starts again with a comment that is not whole
    except expat.ExpatError as error:
        if not found:
            position = f"line {error.lineno}, column {error.offset + 1}"
            raise UnreadableDocument(f"the XML in the file is not well-formed at {position}") from None
    return found[0].rpartition(":")[2]


def _read_other(content: bytes, target: str, kind: str) -> Document:
    """Return a file whose elements all have text to translate, but for those that hold code."""
    check_tags(content.count(b"<"), "the file has")
    text = decoded(content)
    try:
        tokens = xml_tokens(text)
    except MarkupError as error:
        raise UnreadableDocument(f"the XML in the file is not well-formed at {error}") from None
    _, begin, end, name = next(token for token in tokens if token[0] in (OPEN, EMPTY))
    local, start = name.rpartition(":")[2], text[max(end - MOST_START, 0) : end]
    kind = kind or next((each for each, sign in _SIGNS.items() if sign.search(start)), "")
    options = pb.TextOptions(format=pb.TEXT_FORMAT_XML, ignore_tags=_CODE.get(kind, ()))
    note = f"the file is read as any XML, as its root is {local[:40]}: the text of its elements is translated"

    def write(translations: Sequence[str]) -> bytes:
        written = "".join(translations)
        tag = written[begin:end].encode()
        for each in attributes_of(tag, 0, len(tag)) if target else ():
            if each.name == b"xml:lang":  # the prolog, and so the position of the root, are as they were
                quoted = quoteattr(target)
                tag = tag[: each.end - len(each.value) - 2] + quoted.encode() + tag[each.end :]
                written = written[:begin] + tag.decode() + written[end:]
                break
        return encoded(written, content)

    return Document([text], options, write, [] if kind else [note])


_READERS: Mapping[str, Callable[[bytes, str], Document]] = {
    **dict.fromkeys((".xliff", ".xlf", ".sdlxliff", ".mxliff", ".mqxliff"), read_xliff),
    ".tmx": read_memory,
    ".ts": read_qt,
    **dict.fromkeys((".resx", ".resw"), lambda content, target: read_resources(content)),
    ".xml": read_xml,
    **{suffix: partial(read_named_xml, suffix) for suffix in (".svg", ".dita")},
}
SUFFIXES = tuple(_READERS)


def read_xml_file(suffix: str, content: bytes, target: str = "") -> Document:
    """Return a file of this suffix. Raises UnreadableDocument. target: to translate to, empty if it is not known."""
    document = read_recoded(content, lambda text: _READERS[suffix](text, target))
    if not document.texts:
        document.notes.append("nothing in the file is to be translated, and it is written as it is")
    return document
