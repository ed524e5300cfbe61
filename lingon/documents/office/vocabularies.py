"""The names of elements in the files of office programs: which hold text, and which belong to a sentence.

Office Open XML: ISO/IEC 29500-1, chapters 17 (documents) and 21 (drawings, and so slides). OpenDocument: ISO/IEC
26300-1, chapters 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

OPEN_XML = "http://schemas.openxmlformats.org"
STRICT = "http://purl.oclc.org/ooxml"
OASIS = "urn:oasis:names:tc:opendocument:xmlns"

PREFIXES = {
    f"{OPEN_XML}/wordprocessingml/2006/main": "w",
    f"{STRICT}/wordprocessingml/main": "w",
    f"{OPEN_XML}/drawingml/2006/main": "a",
    f"{STRICT}/drawingml/main": "a",
    f"{OPEN_XML}/spreadsheetml/2006/main": "x",
    f"{STRICT}/spreadsheetml/main": "x",
    "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments": "tc",
    f"{OASIS}:text:1.0": "text",
    f"{OASIS}:office:1.0": "office",
    f"{OASIS}:table:1.0": "table",
}
"""Canonical prefixes by the addresses of namespaces."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """The elements of one kind of file, by canonical names.

    paragraphs: those whose text is translated as a whole
    run, properties, text: text of one format, its format, and the text in it; empty if a paragraph holds text itself
    formats: those that give their text a format
    around: those that belong to the sentence with their text, such as links
    inside: by the name of one of them, its child that has the text
    breaks: those at which a sentence ends
    left_out: those that are not written again: they say something about the text that was
    characters: by the names of those that stand for text: this text
    ranges: by the names of those at the begin and at the end of a part of a text: what both are of, the attribute that
        both have, and whether it is the begin
    untouched: those whose paragraphs are not translated
    cells: those whose own paragraphs are translated only if they are what the cell holds: no number, no result
    named: texts of cells that stay, in lower case
    """

    paragraphs: frozenset[str]
    run: str = ""
    properties: str = ""
    text: str = ""
    formats: frozenset[str] = frozenset()
    around: frozenset[str]
    inside: Mapping[str, str] = field(default_factory=dict)
    breaks: frozenset[str]
    left_out: frozenset[str]
    characters: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[str, str, bool]] = field(default_factory=dict)
    untouched: frozenset[str]
    cells: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()


def _ranges(attribute: str, names: Iterable[str], begin: str, end: str) -> dict[str, tuple[str, str, bool]]:
    return {f"{name}{place}": (name, attribute, place == begin) for name in names for place in (begin, end)}


WORD = Vocabulary(
    paragraphs=frozenset(["w:p"]),
    run="w:r",
    properties="w:rPr",
    text="w:t",
    around=frozenset(
        ["w:hyperlink", "w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:sdt", "w:fldSimple", "w:dir", "w:bdo"]
    ),
    inside={"w:sdt": "w:sdtContent"},
    breaks=frozenset(["w:br", "w:cr", "w:tab", "w:ptab"]),
    left_out=frozenset(["w:proofErr", "w:lastRenderedPageBreak", "w:softHyphen"]),
    characters={"w:noBreakHyphen": "-"},
    ranges=_ranges("id", ["w:bookmark", "w:commentRange", "w:perm", "w:moveToRange"], "Start", "End"),
    untouched=frozenset(["w:del", "w:moveFrom"]),
)
DRAWING = Vocabulary(
    paragraphs=frozenset(["a:p"]),
    run="a:r",
    properties="a:rPr",
    text="a:t",
    around=frozenset(),
    breaks=frozenset(["a:br", "a:tab"]),
    left_out=frozenset(),
    untouched=frozenset(),
)
OPEN_DOCUMENT = Vocabulary(
    paragraphs=frozenset(["text:p", "text:h"]),
    formats=frozenset(["text:span"]),
    around=frozenset(["text:a", "text:meta"]),
    breaks=frozenset(["text:line-break", "text:tab"]),
    left_out=frozenset(["text:soft-page-break"]),
    ranges={
        **_ranges("name", ["text:bookmark", "text:reference-mark"], "-start", "-end"),
        **_ranges("change-id", ["text:change"], "-start", "-end"),
        **_ranges("name", ["office:annotation"], "", "-end"),
    },
    untouched=frozenset(["text:tracked-changes"]),
)
OPEN_SPREADSHEET = replace(
    OPEN_DOCUMENT,
    untouched=OPEN_DOCUMENT.untouched | {"table:tracked-changes"},
    cells=frozenset(["table:table-cell", "table:covered-table-cell"]),
)
OPEN_OBJECT = replace(OPEN_DOCUMENT, untouched=OPEN_DOCUMENT.untouched | {"table:table"})
"""A chart inside of a document, without the copies of its data."""
