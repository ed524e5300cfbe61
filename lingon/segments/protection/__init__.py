"""Parts of a text that a translation keeps as they are; it imports only `text` and `segments.boundaries`."""

from lingon.segments.protection.find import TooManySpans, find_protected, uncut
from lingon.segments.protection.form import Form
from lingon.segments.protection.ladder import ladder
from lingon.segments.protection.requests import Align, Answer, Output, Request, Restored, Rung, Translate
from lingon.segments.protection.sentence import kept_spans, kept_strings, leaves_words
from lingon.segments.protection.separators import Custom, Separators
from lingon.segments.protection.spans import DIVIDING, Kind, ProtectedSpan, merge, replaced, without
from lingon.segments.protection.stand_ins import lacks_figures
from lingon.segments.protection.strings import NO_STRINGS, KeptStrings
from lingon.segments.protection.table import TABLE, kept_of

__all__ = [
    "DIVIDING",
    "NO_STRINGS",
    "TABLE",
    "Align",
    "Answer",
    "Custom",
    "Form",
    "KeptStrings",
    "Kind",
    "Output",
    "ProtectedSpan",
    "Request",
    "Restored",
    "Rung",
    "Separators",
    "TooManySpans",
    "Translate",
    "find_protected",
    "kept_of",
    "kept_spans",
    "kept_strings",
    "lacks_figures",
    "ladder",
    "leaves_words",
    "merge",
    "replaced",
    "uncut",
    "without",
]
