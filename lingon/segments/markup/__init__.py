"""HTML and XML as blocks of text with inline tags, and back; it imports of `lingon` only `errors` and `segments`."""

from lingon.segments.markup.blocks import STAND_IN, Block
from lingon.segments.markup.document import Markup, Written
from lingon.segments.markup.plain import PlainText, TooManyKept, WrittenText
from lingon.segments.markup.reading import read_html, read_xml
from lingon.segments.markup.rules import NO_RULES, MarkupRules
from lingon.segments.markup.writing import Translated

__all__ = [
    "NO_RULES",
    "STAND_IN",
    "Block",
    "Markup",
    "MarkupRules",
    "PlainText",
    "TooManyKept",
    "Translated",
    "Written",
    "WrittenText",
    "read_html",
    "read_xml",
]
