"""The text inside a block of Markdown: parsed, as nodes for translation, and written as Markdown that means the same.

The library looks for the end of each tag and comment of HTML again. In texts with many that have none it would take
time with the square of their number. Such a text is not read.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from markdown_it import MarkdownIt, helpers
from markdown_it.common.utils import normalizeReference
from markdown_it.helpers import parseLinkDestination
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_inline import StateInline, html_inline
from markdown_it.token import Token

from lingon.documents.inline import Around, FormattedText, Node, Point, depth_of, named_tag, paired

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
# A formula of TeX in brackets with backslashes has a sign, or is short. No backslash in it is before punctuation, as
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
    """Return the tokens of the text inside a block. Raises TooMuchMarkup."""
    (token,) = PARSER.parseInline(source, environment(source, references))
    return token.children or []


def _look(env: Any, characters: int) -> None:
    """Count characters that were read to find an end."""
    env[_LOOKS] -= characters
    if env[_LOOKS] < 0:
        raise TooMuchMarkup


def _title(string: str, start: int, maximum: int, prev_state: Any = None) -> Any:
    """Read a title. The library reads one line after the other, and copies all that it has at each."""
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
    """Read a table. Raises TooMuchMarkup if too many cells are missing in the rows: the library makes each of them."""
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


def _taken(state: StateInline, found: re.Match[str] | None, kind: str, silent: bool) -> bool:
    """Push what was found as one token, unless the rule is only asked; return whether anything was found."""
    if found is None:
        return False
    if not silent:
        state.push(kind, "", 0).content = found[0]
    state.pos = found.end()
    return True


def _formula(state: StateInline, silent: bool) -> bool:
    """Read a formula of TeX, such as $x^2$, where GitHub does: not in $5 or $6, whose marks have a blank inside."""
    found = _FORMULA.match(state.src, state.pos) if not state.src[max(state.pos - 1, 0) : state.pos].isalnum() else None
    return _taken(state, found, "formula", silent)


def _kept(state: StateInline, silent: bool) -> bool:
    """Read what is for programs: lists of attributes, parts of templates, and formulas in brackets with backslashes."""
    found = _KEPT.match(state.src, state.pos)
    return _taken(state, found, "formula", silent)


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
    return _taken(state, found, "wiki", silent)


def _definition(state: StateInline, silent: bool) -> bool:
    """Read what begins a definition in a line after the first."""
    begin = state.pos
    while begin and state.src[begin - 1] in " \t" and state.pos - begin < MOST_INDENT:
        begin -= 1
    found = DEFINITION.match(state.src, state.pos) if begin and state.src[begin - 1] == "\n" else None
    return _taken(state, found, "definition", silent)


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


# The text inside a block of Markdown as nodes for translation, and Markdown of nodes.
# The parser says what is text and what is not, but not where: each of its tokens is found in the source in turn.

EMPHASIS = frozenset(["em", "strong", "s"])
MARKED = EMPHASIS | {"span"}  # what has marks before and after it that do not depend on what is in it
MOST_RAISED = 256  # characters of a word that a translation can be asked to keep
MOST_DEPTH = 64  # of emphasis, links and tags inside each other
_AUTOLINK = re.compile(r"<[^<>\s]*+>")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]++\]")
_SOFT_BREAK = re.compile(r"[ \t]*+\n[ \t]*+")
_HARD_BREAK = re.compile(r"((?:\\|[ \t]*+)\n)[ \t]*+")
_TITLE = re.compile(
    r"""[ \t\n]*(?:("(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|\((?:[^()\\]++|\\.)*+\))[ \t\n]*)?\)""", re.DOTALL
)
_LABEL = re.compile(r"\[((?:[^\[\]\\]++|\\.)*+)\]", re.DOTALL)
_LINE_BREAK = re.compile(r"<br\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Aside:
    """A text that is translated alone, such as the title of a link; written: as the source has it."""

    text: str
    written: str


@dataclass(frozen=True, slots=True)
class MarkdownMark:
    """What is no text. Between its parts there may be texts that are translated alone.

    parts: its source
    meaning: what a program that shows the text makes of it
    name: of its token, such as em
    label: of the reference that the text before it names
    """

    parts: tuple[str | Aside, ...]
    meaning: str
    name: str = ""
    label: str = ""


class UnknownSource(Exception):
    """A token is not where it is expected in its source. The block is then not translated."""


class TokenReader:
    """A reader of the tokens of a source."""

    def __init__(self, source: str, references: Mapping[str, Any]) -> None:
        self._source, self._at = source, 0
        self._tokens = tokens_of(source, references)
        words = (token.content for token in self._tokens if token.type == "text")
        self.raised: set[str] = set()  # words with raised or lowered characters, which translations have to keep
        self._line_end = " " if any(map(str.isalpha, "".join(words))) else "\n"  # pictures keep their lines

    def nodes(self) -> list[Node[MarkdownMark]]:
        """Return the nodes of the source. Raises UnknownSource, also if it has too many inside each other."""
        levels: list[list[Node[MarkdownMark]]] = [[]]
        starts: list[tuple[MarkdownMark, int, str]] = []
        tokens = iter(self._tokens)
        for token in tokens:
            name, nesting = token.type.rpartition("_")[0], token.nesting
            if token.markup == "autolink":
                meaning = "".join(map(meaning_of, (token, next(tokens), next(tokens))))
                levels[-1].append(Point(MarkdownMark((self._taken(_AUTOLINK),), meaning)))
            elif nesting == 1:
                start = MarkdownMark((self._exactly(token.markup or "["),), meaning_of(token), name)
                starts.append((start, self._at, _label(token)))
                levels.append([])
                if len(levels) > MOST_DEPTH:
                    raise UnknownSource
            elif nesting == -1:
                start, begin, label = starts.pop()
                text = self._source[begin : self._at]
                parts = (self._exactly(token.markup),) if name in MARKED else self._tail(label)
                inside = _with_tags(levels.pop())
                mark = MarkdownMark(parts, meaning_of(token), name, _named(text, parts))
                levels[-1].append(Around(start, inside, mark, link=name == "link"))
            else:
                levels[-1] += self._nodes(token)
        if self._at != len(self._source):
            raise UnknownSource
        nodes = _with_tags(levels[0])
        if depth_of(nodes) > MOST_DEPTH:
            raise UnknownSource
        return nodes

    def _nodes(self, token: Token) -> Iterator[Node[MarkdownMark]]:
        """Yield the nodes of a token without others inside of it."""
        if token.type == "text":
            yield from _text(self._exactly(token.content))
        elif token.type == "definition":
            self._exactly(token.content)
            yield Point(MarkdownMark((f"\n{token.content}",), f" {token.content}"), splits=True)
        elif token.type == "text_special":
            self._exactly(token.markup)
            yield (
                Point(MarkdownMark((token.markup,), token.content))
                if token.content.isspace()
                else FormattedText(token.content)
            )
        elif token.type == "softbreak":
            self._taken(_SOFT_BREAK)
            if not DEFINITION.match(self._source, self._at):  # which has its line break
                yield FormattedText(self._line_end)
        elif token.type == "hardbreak":
            yield Point(MarkdownMark((self._taken(_HARD_BREAK, 1),), meaning_of(token)), splits=True)
        elif token.type == "code_inline":
            yield Point(MarkdownMark((self._code(token.markup),), meaning_of(token)))
        elif token.type == "formula":
            yield Point(MarkdownMark((_in_line(self._exactly(token.content)),), meaning_of(token)))
        elif token.type == "raised":
            word = self._exactly(token.content)
            self.raised.add(word)
            yield FormattedText(word) if len(word) <= MOST_RAISED else Point(MarkdownMark((word,), meaning_of(token)))
        elif token.type == "wiki":
            page, bar, text = self._exactly(token.content)[:-2].partition("|")
            yield Point(
                MarkdownMark((f"{page}{bar}", _aside(text, text), "]]") if bar else (token.content,), meaning_of(token))
            )
        elif token.type == "html_inline":
            splits = bool(_LINE_BREAK.match(token.content))
            yield Point(MarkdownMark((_in_line(self._exactly(token.content)),), meaning_of(token), "html"), splits)
        elif token.type == "image":
            before = self._exactly("![")
            alternative = _aside(self._exactly(token.content), _plain(token.children or []))
            tail = self._tail(_label(token))
            label = _named(token.content, tail)
            yield Point(MarkdownMark((before, alternative, *tail), meaning_of(token), "image", label))
        else:
            raise UnknownSource

    def _exactly(self, text: str) -> str:
        if not self._source.startswith(text, self._at):
            raise UnknownSource
        self._at += len(text)
        return text

    def _taken(self, pattern: re.Pattern[str], group: int = 0) -> str:
        found = pattern.match(self._source, self._at)
        if found is None:
            raise UnknownSource
        self._at = found.end()
        return found[group]

    def _code(self, fence: str) -> str:
        """Return a code span."""
        begin = self._at
        self._exactly(fence)
        for run in re.compile("`+").finditer(self._source, self._at):
            if run[0] == fence:
                self._at = run.end()
                return _in_line(self._source[begin : self._at])
        raise UnknownSource

    def _tail(self, label: str) -> tuple[str | Aside, ...]:
        """Return what is after the text of a link or of an image; label: empty for one that has its address there."""
        begin = self._at
        if label:
            self._exactly("]")
            found = _LABEL.match(self._source, self._at)
            if found and (not found[1] or normalizeReference(found[1]) == label):
                self._at = found.end()
            return (self._source[begin : self._at],)
        self._exactly("](")
        self._taken(re.compile(r"[ \t\n]*"))
        address = parseLinkDestination(self._source, self._at, len(self._source))
        title = _TITLE.match(self._source, address.pos if address.ok else self._at)
        if title is None:
            raise UnknownSource
        self._at = title.end()
        if not title[1]:
            return (_in_line(self._source[begin : self._at]),)
        inside = _aside(title[1][1:-1], re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", title[1][1:-1]))
        before, after = self._source[begin : title.start(1) + 1], self._source[title.end(1) - 1 : self._at]
        return (_in_line(before), inside, _in_line(after))


def _in_line(source: str) -> str:
    """Return the source of a mark in one line: the next one would begin with the marks of the blocks around it."""
    return source.replace("\n", " ")


def meaning_of(token: Token) -> str:
    """Return what a program makes of a token that is no text."""
    if token.type == "wiki":
        return f"\0wiki {token.content.partition('|')[0]}\0"
    if token.type == "raised":
        return raised_meaning(token.content)
    if token.type in ("text", "text_special", "definition"):
        return token.content
    if token.type == "softbreak":
        return " "
    address = token.attrs.get("href", token.attrs.get("src", ""))
    return f"\0{token.type} {address} {'' if token.type == 'image' else token.content}\0"


def raised_meaning(word: str) -> str:
    """Return what a program makes of a word with raised or lowered characters."""
    return f"\0raised {word}\0"


def _text(text: str) -> Iterator[Node[MarkdownMark]]:
    at = 0
    for found in _FOOTNOTE.finditer(text):
        yield FormattedText(text[at : found.start()])
        yield Point(MarkdownMark((found[0],), found[0]))
        at = found.end()
    yield FormattedText(text[at:])


def _aside(written: str, text: str) -> Aside | str:
    written = _in_line(re.sub(r"(?<!\\)\\\n", "\n", written))
    return Aside(text, written) if any(map(str.isalpha, text)) else written


def _plain(tokens: Sequence[Token]) -> str:
    return "".join(
        _plain(token.children) if token.children else " " if token.type == "softbreak" else token.content
        for token in tokens
    )


def _named(text: str, tail: tuple[str | Aside, ...]) -> str:
    """Return the label of a reference that is the text of a link or of an image, empty for another link."""
    return text if tail in (("]",), ("][]",)) else ""


def _label(token: Token) -> str:
    return str(token.meta.get("label", ""))


def _with_tags(nodes: Sequence[Node[MarkdownMark]]) -> list[Node[MarkdownMark]]:
    """Return nodes in which tags of HTML are around what is between them."""

    def tag(point: Point[MarkdownMark]) -> tuple[str, bool] | None:
        (source, *_) = point.content.parts
        return named_tag(source) if point.content.name == "html" and isinstance(source, str) else None

    return paired(nodes, tag)


# Markdown of nodes, which is parsed again before it is used: it must mean what the nodes mean.

_SPECIAL = re.compile(r"[\\`*_\[\]<>&~#$]")
_BLOCK_START = re.compile(r"^(\d{0,9})([-+=.)])", re.MULTILINE)
_BLOCK_IN_TEXT = re.compile(r"\n(?:[-+*](?!\S)|#{1,6}(?!\S)|\d{1,9}[.)](?!\S)|>|[-=]+[ \t]*(?:\n|\Z)|~~~|```)")
_ASIDE = re.compile(r'[\\"\[\]]')
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_BLANKS = re.compile(r"[ \t\r\n]+")
_SPACES = re.compile(r"[ \t\r]+")
_BEGINS_LINE = re.compile(r"[^\W\d_]|[(\[\"'`*_!\u00ab\u2018-\u201e]{1,2}[^\W_]")
_INSIDE = "\2"  # a blank at which a line must not end


@dataclass(frozen=True, slots=True)
class MarkdownStyle:
    """How nodes are written.

    escape: whether characters that may mean something get a backslash
    emphasis: the marks around words: those of the source, asterisks instead, asterisks and underscores in
        turn, as runs of one character may mean something else, or none
    """

    escape: bool
    emphasis: str = "kept"


STYLES = [
    MarkdownStyle(escape, emphasis) for emphasis in ("kept", "asterisks", "in turn", "none") for escape in (False, True)
]
"""What is tried in turn: the first that means what the nodes mean is taken."""


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """How the text of a block is to be written.

    references: of the document
    before, after: what makes a heading of the text: its marks, or the line below it
    width: characters of its longest line, at which lines are ended; 0 to write one line
    in_cell: whether it is a cell of a table
    in_title: whether it is between quotation marks, or at the end of a line
    """

    references: MutableMapping[str, Any]
    before: str = ""
    after: str = ""
    width: int = 0
    in_cell: bool = False
    in_title: bool = False

    def written(self, nodes: Sequence[Node[MarkdownMark]], asides: Callable[[Aside], str]) -> str | None:
        """Return nodes as Markdown, None if there is no way to write them. asides: returns translations."""
        for style in STYLES:
            source, meaning = _MarkdownWriter(style, asides).block(nodes)
            source = _wrapped(source, self.width).replace(_INSIDE, " ")
            if _squeezed(self._meaning(source)) == _squeezed(meaning):
                return source.replace("|", r"\|") if self.in_cell else source
        return None

    def _meaning(self, source: str) -> str:
        """Return what the text of a block means, empty if it is no single block of its kind."""
        text = f"{self.before}{source}{self.after}"
        try:
            tokens = PARSER.parse(text, environment(text, ChainMap({}, self.references)))
        except TooMuchMarkup:
            return ""
        kind = "heading_open" if self.before or self.after else "paragraph_open"
        if len(tokens) != 3 or tokens[0].type != kind or (self.in_cell and "\n" in source):
            return ""
        if self.in_title and re.search(r"[\"\n\[\]{}]", source):
            return ""
        if _BLOCK_IN_TEXT.search(source):  # which begins a block where the line is in less blocks than the first
            return ""
        return _meaning(tokens[1].children or [])


class _MarkdownWriter:
    def __init__(self, style: MarkdownStyle, asides: Callable[[Aside], str]) -> None:
        self._style, self._asides = style, asides
        self._inside = 0  # emphasis around what is written

    def block(self, nodes: Sequence[Node[MarkdownMark]]) -> tuple[str, str]:
        """Return nodes as Markdown, and what they mean."""
        source, meaning = self._written(nodes)
        source = source.strip(" \n")
        return (_BLOCK_START.sub(r"\1\\\2", source) if self._style.escape else source), meaning

    def _written(self, nodes: Sequence[Node[MarkdownMark]]) -> tuple[str, str]:
        parts = list(map(self._node, nodes))
        return "".join(source for source, _ in parts), "".join(meaning for _, meaning in parts)

    def _node(self, node: Node[MarkdownMark]) -> tuple[str, str]:
        if isinstance(node, FormattedText):
            text = _SPACES.sub(" ", node.text)
            meaning = RAISED_WORD.sub(lambda word: raised_meaning(word[0]), text)
            return (self._escaped(text) if self._style.escape else text), meaning
        if not isinstance(node, Around):
            return self._mark(node.content), node.content.meaning
        self._inside += node.before.name in EMPHASIS
        source, meaning = self._written(node.nodes)
        self._inside -= node.before.name in EMPHASIS
        if node.before.name in EMPHASIS:
            return self._emphasis(source, meaning, node)
        after, label = self._mark(node.after), node.after.label
        if label and normalizeReference(source) != normalizeReference(label):
            after = f"][{label}]"
        return f"{self._mark(node.before)}{source}{after}", f"{node.before.meaning}{meaning}{node.after.meaning}"

    def _escaped(self, text: str) -> str:
        """Return a text with backslashes before what may mean something, but in words with raised characters."""
        found, at = list[str](), 0
        for word in RAISED_WORD.finditer(text):
            found += [_SPECIAL.sub(r"\\\g<0>", text[at : word.start()]), word[0]]
            at = word.end()
        return "".join([*found, _SPECIAL.sub(r"\\\g<0>", text[at:])])

    def _emphasis(self, source: str, meaning: str, node: Around[MarkdownMark]) -> tuple[str, str]:
        """Return words with marks around them. Blanks at their ends are outside of the marks."""
        inside = source.strip(" ")
        if not inside or self._style.emphasis == "none":
            return source, meaning
        before, after = self._mark(node.before), self._mark(node.after)
        if self._style.emphasis == "asterisks":
            before, after = before.replace("_", "*"), after.replace("_", "*")
        elif self._style.emphasis == "in turn":
            old, new = ("_", "*") if self._inside % 2 == 0 else ("*", "_")
            before, after = before.replace(old, new), after.replace(old, new)
        first, last = source.partition(inside)[::2]
        return (
            f"{first}{before}{inside}{after}{last}",
            f"{first}{node.before.meaning}{meaning.strip(' ')}{node.after.meaning}{last}",
        )

    def _mark(self, mark: MarkdownMark) -> str:
        parts = list(map(self._part, mark.parts))
        if mark.label and len(parts) > 1 and parts[1] != mark.label:  # an image
            parts[-1] = f"][{mark.label}]"
        return "".join(parts).replace(" ", _INSIDE)

    def _part(self, part: str | Aside) -> str:
        if isinstance(part, str):
            return part
        text = _squeezed(self._asides(part))
        if text == _squeezed(part.text):
            return part.written
        return (_PUNCTUATION if self._style.escape else _ASIDE).sub(r"\\\g<0>", text)


def _meaning(tokens: Sequence[Token]) -> str:
    return "".join(map(meaning_of, tokens))


def _squeezed(text: str) -> str:
    return _BLANKS.sub(" ", text).strip(" ")


def _wrapped(source: str, width: int) -> str:
    """Return lines that end before words, which begin no block; width: their most characters, or 0 for all."""
    return "\n".join("\n".join(_lines(line, width)) for line in source.split("\n")) if width else source


def _lines(line: str, width: int) -> Iterator[str]:
    first, *words = line.split(" ")
    found = first
    for word in words:
        if len(found) + 1 + len(word) > width and _BEGINS_LINE.match(word) and found.strip():
            yield found
            found = word
        else:
            found += f" {word}"
    yield found
