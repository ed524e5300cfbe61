"""Light markup in messages: reStructuredText and Markdown, where a file or a flag says that a message has it.

Manuals in Sphinx and other generators are translated by files of gettext whose references name the pages. Code, targets
and addresses stay as they are; emphasis, links and labels are around their text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lingon.documents.inline import Around, Node, Piece, Point

REST, MARKDOWN = "rst", "md"
_FLAGS = {"rst-text": REST, "md-text": MARKDOWN}
_PAGE = re.compile(r"\.(rst|md|markdown|mdx)(?=:\d|\s|\Z)")
_BEGIN, _END = r"(?<![\w\\`*])", r"(?![\w`*])"
_MARKS = {
    REST: re.compile(
        rf"(?P<kept>``[^`\n](?:[^`]|`(?!`))*+``|\|[^\s|][^|\n]{{0,100}}\||\[[\w#*.-]{{1,40}}\]_{_END})"
        rf"|(?P<before>{_BEGIN}(?::(?:guilabel|menuselection|strong|emphasis|sub|sup|abbr|dfn):)`)"
        r"(?P<text>[^`\n<>]{1,300})(?P<after>`)"
        rf"|(?P<before2>{_BEGIN}(?::[\w:.+-]{{1,60}}:)?`)(?P<text2>[^`\n<>]{{1,300}}?)"
        r"(?P<after2>\s?<[^`<>\n]{1,500}>`_{0,2})"
        rf"|(?P<role>{_BEGIN}:[\w:.+-]{{1,60}}:`[^`\n]{{1,500}}`|{_BEGIN}`[^`\n]{{1,300}}`_{{0,2}})"
        rf"|(?P<before3>{_BEGIN}\*\*)(?P<text3>[^\s*](?:[^*\n]{{0,300}}[^\s*])?)(?P<after3>\*\*{_END})"
        rf"|(?P<before4>{_BEGIN}\*)(?P<text4>[^\s*](?:[^*\n]{{0,300}}[^\s*])?)(?P<after4>\*{_END})"
    ),
    MARKDOWN: re.compile(
        r"(?P<kept>`[^`\n]{1,500}`|``[^\n]{1,500}?``|!\[[^\[\]\n]{0,300}\]\([^()\s]{1,500}\))"
        r"|(?P<before>\[)(?P<text>[^\[\]\n]{1,300})(?P<after>\]\([^()\n]{1,500}\)|\]\[[^\[\]\n]{0,300}\])"
        rf"|(?P<before2>{_BEGIN}(?:\*\*|__))(?P<text2>[^\s*_](?:[^*_\n]{{0,300}}[^\s*_])?)(?P<after2>(?:\*\*|__){_END})"
        rf"|(?P<before3>{_BEGIN}[*_])(?P<text3>[^\s*_](?:[^*_\n]{{0,300}}[^\s*_])?)(?P<after3>[*_]{_END})"
    ),
}


def markup_of(flags: set[str], references: str) -> str:
    """Return the markup of a message, REST or MARKDOWN; empty if it has none.

    flags: of the message; references: the places that it is from
    """
    for flag, markup in _FLAGS.items():
        if flag in flags:
            return markup
    page = _PAGE.search(references)
    return "" if page is None else REST if page[1] == "rst" else MARKDOWN


def with_marks(text: str, markup: str) -> Iterator[Node[bytes]]:
    """Yield a text with what its markup marks; all patterns are bounded, so that a mark without an end costs little."""
    if not markup:
        yield Piece(text)
        return
    at = 0
    for found in _MARKS[markup].finditer(text):
        yield Piece(text[at : found.start()])
        at = found.end()
        groups = found.groupdict()
        name = next((name for name, value in groups.items() if name.startswith("text") and value), "")
        if not name:
            yield Point(found[0].encode())
            continue
        number = name.removeprefix("text")
        before, after = groups[f"before{number}"], groups[f"after{number}"]
        yield Around(before.encode(), [Piece(groups[name])], after.encode())
    yield Piece(text[at:])
