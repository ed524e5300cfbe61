"""Subtitles of SubStation Alpha (.ass, .ssa): the texts of dialogues are translated, all else is copied.

Sentences go on in the next dialogue of the same style and name. Lines of karaoke, whose syllables have times, and what
programs have made of them stay as they are. pysubs2 1.8 is not used: it writes all styles and comments anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from lingon.documents.bounds import check_marks, check_size
from lingon.documents.document import Document
from lingon.documents.encodings import read_encoded
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import text_options
from lingon.documents.text_files.cues import PATH, Cue, Syntax, groups_of, replaced
from lingon.documents.text_files.subtitles import override

_SCRIPT_LINE = re.compile(r"([^\r\n]*+)(?:\r\n|\r|\n|\Z)")
_SECTION = re.compile(r"\s*+\[([^\[\]]*+)\]\s*+")
_SCRIPT_TIME = re.compile(r"\s*+(\d{1,4}):(\d{1,2}):(\d{1,2}(?:\.\d{1,3})?)\s*+")
# A drawing is commands between braces that turn it on and off: no text, as comments in braces are none.
_DRAWS = r"\{(?=[^{}]*+\})[^{}\\]*+(?:\\(?!p[1-9])[^{}\\]*+)*+\\p[1-9]"
_DRAWN = r"\{[^{}\\]*+(?:\\(?!p0)[^{}\\]*+)*+\\p0"
_OVERRIDES = re.compile(
    rf"{_DRAWS}(?:(?!{_DRAWN})[^\x00\x01])*+(?:\{{[^{{}}]*+\}})?|\{{[^{{}}\x00\x01]*+\}}|[\u266a\u266b]++"
)
_SYLLABLE = re.compile(r"\\[kK][fot]?\d")
_SYNTAX = Syntax(
    _OVERRIDES, re.compile(r"\\[Nn]"), override, blank=re.compile(rf"{PATH}|\\h"), line_characters=sys.maxsize
)  # the program that shows a line wraps it
MADE = ("fx", "karaoke", "code", "template")  # effects of dialogues that programs make
MOST_FIELDS = 64  # of a dialogue


def read_substation(content: bytes) -> Document:
    """Return subtitles of SubStation Alpha; raises UnreadableDocument."""
    check_size(len(content), "the file has")
    text, encoding = read_encoded(content)
    check_marks(text.count("{") + text.count("\\") + text.count("\n"))
    notes, cues = list[str](), list[Cue]()
    sung = 0
    for fields, cue in _dialogues(text):
        if fields.get("effect", "").strip().lower().startswith(MADE) or len(_SYLLABLE.findall(cue.text)) > 1:
            sung += 1
        else:
            cues.append(cue)
    if sung:
        notes.append(f"dialogues of karaoke stay as they are: {sung:,}")
    groups = groups_of(cues, _SYNTAX, "\\N")

    def write(translations: Sequence[str]) -> bytes:
        return encoding.written(replaced(text, groups, translations), notes)

    return Document([group.inline.text for group in groups], text_options(), write, notes)


def _dialogues(text: str) -> Iterator[tuple[Mapping[str, str], Cue]]:
    """Yield the fields of each dialogue, by their names in lower case, and its text; raises UnreadableDocument."""
    section, names = "", list[str]()
    for number, line in enumerate(_SCRIPT_LINE.finditer(text), start=1):
        if found := _SECTION.fullmatch(line[1]):
            section = found[1].strip().lower()
            continue
        kind, _, value = line[1].partition(":")
        kind = kind.strip().lower()
        if section != "events" or kind not in ("format", "dialogue"):
            continue
        if kind == "format":
            names = [name.strip().lower() for name in value.split(",")]
            if names[-1] != "text" or len(names) > MOST_FIELDS:
                raise UnreadableDocument(
                    f"line {number} of the file must name Text last of at most {MOST_FIELDS} fields, got {value[:80]!a}"
                )
            continue
        values = value.split(",", len(names) - 1) if names else []
        if len(values) < len(names) or not names:
            raise UnreadableDocument(f"line {number} of the file is a dialogue of other fields than its format says")
        fields = dict(zip(names, values, strict=True))
        start, stop = (_script_seconds(fields.get(name, "")) for name in ("start", "end"))
        track = f"{fields.get('style', '')},{fields.get('name', fields.get('actor', ''))},{fields.get('layer', '')}"
        content = values[-1].rstrip()
        begin = line.end(1) - len(values[-1])
        yield fields, Cue(content, begin, begin + len(content), start, stop, track)
    if section == "" and not text.lstrip("\ufeff").lower().startswith("[script info]") and text.strip():
        raise UnreadableDocument("the file has no subtitles of SubStation Alpha")


def _script_seconds(time: str) -> float:
    found = _SCRIPT_TIME.fullmatch(time)
    return int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3]) if found else 0.0
