"""YAML files of texts, such as those of Rails: the strings are translated where they are.

Keys, comments, anchors, numbers and all else are copied byte for byte. The language at the root of a file of Rails
becomes that of the translation, and forms of a plural that it has and the file lacks are added before `other`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from yaml import (
    AliasEvent,
    CollectionEndEvent,
    Event,
    MappingStartEvent,
    MarkedYAMLError,
    NodeEvent,
    ScalarEvent,
    ScalarNode,
    SequenceStartEvent,
    YAMLError,
    parse,
)
from yaml.reader import ReaderError
from yaml.resolver import Resolver

from lingon.documents.document import Document, Edit, UnreadableDocument
from lingon.documents.edits import TextEntry, broken, document_of, replacing, text_and_encoder
from lingon.documents.messages import Message
from lingon.documents.plurals import is_plural, lacking, language_of
from lingon.language_tags import is_same_tag


def read_yaml(content: bytes, target: str = "") -> Document:
    """Return a YAML file. Raises UnreadableDocument. target: the language to translate to, empty if not known."""
    text, encode = text_and_encoder(content)
    roots = read_documents(text)
    style, edits, notes = ScalarStyle(text), list[Edit[str]](), list[str]()
    for root in roots:
        language = _language(root)
        if language is not None and not target:
            notes.append(f"the file says {language.text} at its root still: the target language was not given")
        elif language is not None and not is_same_tag(language.text, target):
            edits.append(Edit(language.begin, language.end, style.alone(language)(target)))
    entries = (entry for root in roots for entry in _entries(root, style, target))
    found = document_of(text, entries, encode, edits)
    found.notes.extend(notes if found.texts else ())
    return found


def _language(root: YamlNode) -> YamlNode | None:
    """Return the key that says the language of a file of Rails. Raises UnreadableDocument if there are several."""
    keys = [member.key for member in root.members if member.key is not None and member.kind == "mapping"]
    if root.kind != "mapping" or len(keys) != len(root.members) or not language_of([key.text for key in keys]):
        return None
    return keys[0]


def _entries(root: YamlNode, style: ScalarStyle, target: str) -> Iterator[TextEntry]:
    """Yield the strings of a document, in their order."""
    waiting: list[Iterator[tuple[YamlNode, Sequence[str]]]] = [iter([(root, ())])]
    while waiting:
        node, added = next(waiting[-1], (None, ()))
        if node is None:
            waiting.pop()
        elif node.kind == "scalar" and node.is_string and node is not root:
            yield _entry(node, added, style, target)
        elif node.members:
            forms = _forms(node, target) if target else []
            waiting.append(iter([(each, forms if _key(each) == "other" else ()) for each in node.members]))


def _key(node: YamlNode) -> str:
    return node.key.text if node.key is not None else ""


def _forms(node: YamlNode, target: str) -> list[str]:
    """Return the forms that a plural lacks, or none for another mapping."""
    keys = [_key(each) for each in node.members]
    is_text = all(each.kind == "scalar" and each.is_string for each in node.members)
    return lacking(keys, target) if node.kind == "mapping" and is_text and is_plural(keys) else []


def _entry(node: YamlNode, added: Sequence[str], style: ScalarStyle, target: str) -> TextEntry:
    message = Message(node.text, target=target)
    changed = replacing(message, node.begin, node.end, node.text, style.like(node))
    key = node.key
    if not added or key is None:
        return changed
    between = ", " if node.is_flow else f"{style.end}{' ' * key.column}"

    def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
        for form in added:
            yield Edit(key.begin, key.begin, f"{form}: {style.alone(node)(translations[0])}{between}")
        yield from changed.edits(translations)

    return TextEntry([message], edits, always=True)


try:
    from yaml import CSafeLoader as Loader  # ten times as fast
except ImportError:
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

if TYPE_CHECKING:
    from yaml._yaml import Mark  # of the parser in C
    from yaml.error import Mark as PythonMark

# The scalars of a YAML file with their positions in it, so that all else is copied byte for byte.
# No library writes a file as it was: ruamel.yaml keeps comments, but neither indentation nor the lines of scalars.
# PyYAML tells the position of each event of its parser, which are taken here.

MOST_DEPTH = 64  # of mappings and sequences inside each other
MOST_NODES = 500_000  # of a file
_PROPERTIES = re.compile(r"(?:[&!]\S*+(?:\s++|#[^\n]*+)*+)++")  # an anchor and a tag before a scalar
_STRING = "tag:yaml.org,2002:str"
_RESOLVER = Resolver()


@dataclass(slots=True)
class YamlNode:
    """A value. One of a mapping has a key.

    kind: mapping, sequence, scalar, or other for an alias
    begin, end: of a scalar in the text of the file, without its anchor and tag
    text: of a scalar; style: how it is written, such as | or ', empty for a plain one
    is_string: whether a scalar is text and no number, date or the like
    is_flow: whether it is in braces or brackets
    key: the scalar before a value of a mapping, or None for a key of another kind
    column: blanks before a scalar that is a key
    """

    kind: str
    begin: int = 0
    end: int = 0
    text: str = ""
    style: str = ""
    is_string: bool = False
    is_flow: bool = False
    key: YamlNode | None = None
    column: int = 0
    members: list[YamlNode] = field(default_factory=list)


def read_documents(text: str) -> list[YamlNode]:
    """Return the values of the documents in a file. Raises UnreadableDocument that names line and column."""
    roots: list[YamlNode] = []
    open_nodes: list[YamlNode] = []
    keys: list[YamlNode | None] = []  # of the nodes that are open: a key that waits for its value
    count = 0
    for event in _events(text):
        if isinstance(event, CollectionEndEvent):
            done = open_nodes.pop()
            keys.pop()
            _add(done, open_nodes, keys, roots)
            continue
        node = _node(event, text)
        if node is None:
            continue
        count += 1
        if count > MOST_NODES:
            raise UnreadableDocument(f"the file has more than {MOST_NODES:,} values")
        node.is_flow = node.is_flow or bool(open_nodes and open_nodes[-1].is_flow)
        if node.kind in ("mapping", "sequence"):
            if len(open_nodes) >= MOST_DEPTH:
                problem = f"values are in more than {MOST_DEPTH} others"
                raise broken(text, _mark(event.start_mark).index, "YAML", problem)
            open_nodes.append(node)
            keys.append(None)
        else:
            _add(node, open_nodes, keys, roots)
    return roots


def _add(node: YamlNode, open_nodes: list[YamlNode], keys: list[YamlNode | None], roots: list[YamlNode]) -> None:
    """Put a whole value where it belongs: it may be a key."""
    if not open_nodes:
        roots.append(node)
    elif open_nodes[-1].kind == "mapping" and keys[-1] is None:
        keys[-1] = node
    else:
        node.key, keys[-1] = keys[-1], None
        open_nodes[-1].members.append(node)


def _events(text: str) -> Iterator[Event]:
    try:
        yield from parse(text, Loader=Loader)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context).split())
        raise broken(text, mark.index if mark is not None else 0, "YAML", problem) from None
    except ReaderError as error:
        raise broken(text, error.position, "YAML", "a character is not allowed") from None


def _node(event: Event, text: str) -> YamlNode | None:
    """Return the value that begins with an event, or None if none does."""
    if isinstance(event, MappingStartEvent):
        return YamlNode("mapping", is_flow=bool(event.flow_style))
    if isinstance(event, SequenceStartEvent):
        return YamlNode("sequence", is_flow=bool(event.flow_style))
    if isinstance(event, AliasEvent):
        return YamlNode("other")
    if not isinstance(event, ScalarEvent):
        return None
    first, last, style = _mark(event.start_mark), _mark(event.end_mark), event.style or ""
    begin, end = first.index, last.index
    if event.anchor is not None or event.tag is not None:
        properties = _PROPERTIES.match(text, begin, end)
        begin = properties.end() if properties is not None else begin
    tagged = event.tag not in (None, "!", _STRING)
    is_string = not tagged and (bool(style) or event.tag is not None or is_text(event.value))
    return YamlNode("scalar", begin, end, event.value, style, is_string, column=first.column)


def _mark(mark: Mark | PythonMark | None) -> Mark | PythonMark:
    assert mark is not None
    return mark


def is_text(plain: str) -> bool:
    """Return whether a plain scalar is text, and no number, truth value, date or the like, by YAML 1.1."""
    return bool(_RESOLVER.resolve(ScalarNode, plain, (True, False)) == _STRING)  # type: ignore[no-untyped-call]


def scalar_of(fragment: str) -> str | None:
    """Return the text of a value as a file would have it, or None if it is no scalar."""
    try:
        events = [event for event in parse(f"x: {fragment}", Loader=Loader) if isinstance(event, NodeEvent)]
    except YAMLError:
        return None
    if len(events) != 3 or not isinstance(events[2], ScalarEvent):  # the mapping, its key and its value
        return None
    return str(events[2].value)


# How a translation is written as a scalar of YAML in place of another one, in its style where that can hold it.

_SAFE = re.compile(
    r"[^\W_](?:[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff:#]++|:(?![\s,\[\]{}]|\Z)|(?<!\s)#)*+(?<!\s)"
)
_IN_FLOW = re.compile(r"[,\[\]{}]")
_CONTROL = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]')
_SIGNS = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_BEYOND = re.compile(r"[^\x00-\x7f]")
_ESCAPES = re.compile(r"\\(?:x[89A-Fa-f]|u(?!00[0-7])|U)[0-9A-Fa-f]")
LEAST_WIDTH = 40  # of the lines of folded text


class ScalarStyle:
    """How the scalars of a file are written: characters beyond ASCII as such, or as escapes in quotation marks.

    end: of its lines
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.end = "\r\n" if "\r\n" in text else "\n"
        self._escapes = text.isascii() and _ESCAPES.search(text) is not None

    def like(self, node: YamlNode) -> Callable[[str], str]:
        """Return what writes a text in place of a scalar."""
        raw = self._text[node.begin : node.end]
        if node.style in ("|", ">"):
            return lambda text: self._block(raw, node.style, text)
        return self.alone(node)

    def alone(self, node: YamlNode) -> Callable[[str], str]:
        """Return what writes a text in the style of a scalar, in one line."""

        def written(text: str) -> str:
            fits = _SAFE.fullmatch(text) is not None and not (node.is_flow and _IN_FLOW.search(text))
            if node.style == "" and fits and is_text(text):
                return text
            if node.style == "'" and not _CONTROL.search(text.replace('"', "").replace("\\", "")):
                return "'" + text.replace("'", "''") + "'"
            return self.quoted(text)

        return written

    def quoted(self, text: str) -> str:
        """Return a text in double quotation marks."""
        text = _CONTROL.sub(lambda found: _SIGNS.get(found[0]) or f"\\u{ord(found[0]):04x}", text)
        return f'"{_BEYOND.sub(_escaped, text) if self._escapes else text}"'

    def _block(self, raw: str, style: str, text: str) -> str:
        """Return a text in lines below a mark, or in quotation marks if it cannot be written so."""
        content = raw.rstrip(" \t\r\n")
        header, _, body = content.partition("\n")
        header = header.removesuffix("\r")
        tail = raw[len(content) :]
        blanks = body.lstrip("\r\n")
        indent = blanks[: len(blanks) - len(blanks.lstrip(" "))]
        lines = text.rstrip("\n").split("\n")
        if style == ">":
            width = max(LEAST_WIDTH, *(len(line.strip()) for line in body.splitlines()), 0)
            lines = "\n\n".join("\n".join(_wrapped(line, width)) for line in lines).split("\n")
        written = self.end.join([header, *(f"{indent}{line}" if line else "" for line in lines)])
        if indent and scalar_of(f"{written}{tail}") == text:
            return f"{written}{tail}"
        return f"{self.quoted(text)}{tail}"


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
