"""The parsers of Markdown: of blocks, and of the text inside of one. What they do is bounded by the size of the text.

The library looks for the end of each tag and comment of HTML anew. In texts with many that have none it would take time
with the square of their number; such a text is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from markdown_it import MarkdownIt, helpers
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_inline import StateInline, html_inline
from markdown_it.token import Token

MOST_TITLE = 1000  # characters of the title of a reference in several lines
MOST_LOOKS = 64  # at each character of a text, while ends of tags and comments are looked for
MORE_LOOKS = 20_000  # characters that are looked at beside these
MORE_CELLS = 1000  # that the rows of tables may lack, beside one for each character of the text
_FORMULA = re.compile(r"\$\$[^$]++\$\$|\$(?![\s$])(?:[^$\\`]++|\\.)++(?<!\s)\$(?![\w$])", re.DOTALL)
_ATTRIBUTES = (
    r"\{(?::[^{}\n]{0,500}|[ \t]*+(?:(?:[#.][^\s{}\"'=]++|[A-Za-z_:][\w:.-]*+="
    r"(?:\"[^\"{}\n]*+\"|'[^'{}\n]*+'|[^\s{}\"']++))[ \t]*+)++)\}"
)
_PAGES = r"\{%[^{}\n]{0,500}%\}|\{\{[<%][^{}\n]{0,500}[>%]\}\}"  # what makes a page of a template
# A formula of TeX in brackets with backslashes has a sign, or is short; no backslash in it is before punctuation, as
# one that only makes text of it.
_SIGN, _IN_TEX = r"(?:[\^=+{}|/_<>]|\\[A-Za-z])", r"(?:[^\n\\\[\]]|\\(?=[A-Za-z]))"
_TEX = (
    rf"\\(?:\((?=\S{{1,3}}\\\)|{_IN_TEX}{{0,300}}?{_SIGN}){_IN_TEX}{{1,300}}+\\\)"
    rf"|\[(?={_IN_TEX}{{0,300}}?{_SIGN}){_IN_TEX}{{1,300}}+\\\])"
)
_KEPT = re.compile(f"{_ATTRIBUTES}|{_PAGES}|{_TEX}")
_SPAN = re.compile(
    rf"\[(?P<text>[^\[\]\n]{{1,500}})(?P<end>\]{_ATTRIBUTES})"
    r"|==(?=[^\s=])(?P<marked>[^=\n]{1,500})(?<=[^\s=])==(?!=)"
)
_WIKI = re.compile(r"!?\[\[[^\[\]\n]{1,300}\]\]")
_RAISED = re.compile(r"(?:(?:~(?!~)[^\s~]{1,100}~(?!~)|\^(?!\[)[^\s^]{1,100}\^)\w{0,100})++")
RAISED_WORD = re.compile(rf"(?<!\w)\w{{0,100}}{_RAISED.pattern}")
DEFINITION = re.compile(r"(?::|\*\[[^\[\]\n]{1,100}\]:|\[\^[^\[\]\s]{1,100}\]:)[ \t]+")
"""What begins the definition of a term, of a short form or of a footnote, in other kinds of Markdown."""

MOST_INDENT = 3  # blanks before it
MOST_WORD = 100  # characters of a word before what is raised or lowered in it
_TAG_NAME = re.compile(r"<[A-Za-z][A-Za-z0-9-]*+")
_ATTRIBUTE = re.compile(r"""\s++[A-Za-z_:][\w:.-]*+(?:\s*+=\s*+(?:[^"'=<>`\x00-\x20]++|"[^"]*+"|'[^']*+'))?+""")
_LOOKS = "looks"  # that are left, in the environment of the library


class TooMuchMarkup(Exception):
    """A text has so many marks without an end that reading it would take too long."""


def environment(text: str, references: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the parsers are to know of a text; references: those of the document."""
    return {"references": references, _LOOKS: MOST_LOOKS * len(text) + MORE_LOOKS}


def tokens_of(source: str, references: Mapping[str, Any]) -> list[Token]:
    """Return the tokens of the text inside a block; raises TooMuchMarkup."""
    (token,) = PARSER.parseInline(source, environment(source, references))
    return token.children or []


def _look(env: Any, characters: int) -> None:
    """Count characters that were read to find an end."""
    env[_LOOKS] -= characters
    if env[_LOOKS] < 0:
        raise TooMuchMarkup


def _title(string: str, start: int, maximum: int, prev_state: Any = None) -> Any:
    """Read a title; the library reads one line after the other, and copies all that it has at each."""
    title = helpers.parseLinkTitle(string, start, maximum, prev_state)
    title.can_continue = title.can_continue and len(title.str) <= MOST_TITLE
    return title


def _html(state: StateInline, silent: bool) -> bool:
    """Read a tag or a comment of HTML."""
    begin = state.pos
    if html_inline(state, silent):
        return True
    if state.src.startswith("<!--", begin):
        _look(state.env, max(state.html_terminator_last("-->") - begin, 0))
    elif name := _TAG_NAME.match(state.src, begin):
        end = name.end()
        while attribute := _ATTRIBUTE.match(state.src, end):
            end = attribute.end()
        _look(state.env, end - begin)
    return False


def _table(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Read a table; raises TooMuchMarkup if too many cells are missing in the rows: the library makes each of them."""
    first = len(state.tokens)
    if not table(state, start_line, end_line, silent):
        return False
    first_row = start_line + 2
    if not silent and state.line > first_row:
        cells = sum(token.type == "td_open" for token in state.tokens[first:])
        text = state.src[state.bMarks[first_row] : state.eMarks[state.line - 1]]
        lacking = cells - text.count("|") - (state.line - first_row)
        state.env["lacking"] = state.env.get("lacking", 0) + max(lacking, 0)
        if state.env["lacking"] > (most := len(state.src) + MORE_CELLS):
            raise TooMuchMarkup(f"the rows of its tables lack {state.env['lacking']:,} cells; at most {most:,}")
    return True


def _formula(state: StateInline, silent: bool) -> bool:
    """Read a formula of TeX, such as $x^2$, where GitHub does: not in $5 or $6, whose marks have a blank inside."""
    found = _FORMULA.match(state.src, state.pos) if not state.src[max(state.pos - 1, 0) : state.pos].isalnum() else None
    if found is None:
        return False
    if not silent:
        state.push("formula", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _kept(state: StateInline, silent: bool) -> bool:
    """Read what is for programs: lists of attributes, parts of templates, and formulas in brackets with backslashes."""
    found = _KEPT.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("formula", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _raised(state: StateInline, silent: bool) -> bool:
    """Read a word with raised or lowered characters, such as H~2~O, as a whole."""
    found = _RAISED.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        begin = len(state.pending)
        while begin and len(state.pending) - begin < MOST_WORD and state.pending[begin - 1].isalnum():
            begin -= 1
        word, state.pending = state.pending[begin:], state.pending[:begin]
        state.push("raised", "", 0).content = word + found[0]
    state.pos = found.end()
    return True


def _page(state: StateInline, silent: bool) -> bool:
    """Read a link of a wiki, [[page]] or [[page|text]]."""
    found = _WIKI.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("wiki", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _definition(state: StateInline, silent: bool) -> bool:
    """Read what begins a definition in a line after the first."""
    begin = state.pos
    while begin and state.src[begin - 1] in " \t" and state.pos - begin < MOST_INDENT:
        begin -= 1
    found = DEFINITION.match(state.src, state.pos) if begin and state.src[begin - 1] == "\n" else None
    if found is None:
        return False
    if not silent:
        state.push("definition", "", 0).content = found[0]
    state.pos = found.end()
    return True


def _span(state: StateInline, silent: bool) -> bool:
    """Read text with attributes, [text]{.a}, or marked text, ==text==."""
    found = _SPAN.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        most = state.posMax
        start, group, end = ("[", "text", found["end"]) if found["text"] else ("==", "marked", "==")
        state.push("span_open", "", 1).markup = start
        state.pos, state.posMax = found.span(group)
        state.md.inline.tokenize(state)
        state.push("span_close", "", -1).markup = end
        state.posMax = most
    state.pos = found.end()
    return True


class _Helpers(ModuleType):
    """What the rules of the library call."""

    parseLinkDestination = staticmethod(helpers.parseLinkDestination)
    parseLinkLabel = staticmethod(helpers.parseLinkLabel)
    parseLinkTitle = staticmethod(_title)


def _bounded(parser: MarkdownIt) -> MarkdownIt:
    parser.helpers = _Helpers("helpers")
    parser.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    parser.inline.ruler.at("html_inline", _html)
    return parser


PARSER = _bounded(MarkdownIt("commonmark", {"store_labels": True}))
PARSER.enable(["table", "strikethrough"]).disable("text_join")
for _name, _rule in (
    ("definition", _definition),
    ("formula", _formula),
    ("kept", _kept),
    ("raised", _raised),
    ("wiki", _page),
    ("span", _span),
):
    PARSER.inline.ruler.before("escape", _name, _rule)
BLOCKS = _bounded(MarkdownIt("commonmark")).enable("table").disable("inline")  # does not read the text inside of blocks
