"""The scalars of a YAML file with their places in it, so that all else is copied byte for byte.

No library writes a file as it was: ruamel.yaml keeps comments, but neither indentation nor the lines of scalars. PyYAML
tells the place of each event of its parser, which are taken here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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

from lingon.documents.errors import UnreadableDocument
from lingon.documents.localisation.edits import broken

try:
    from yaml import CSafeLoader as Loader  # ten times as fast
except ImportError:
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

if TYPE_CHECKING:
    from yaml._yaml import Mark  # of the parser in C
    from yaml.error import Mark as PythonMark

MOST_DEPTH = 64  # of mappings and sequences inside each other
MOST_NODES = 500_000  # of a file
_PROPERTIES = re.compile(r"(?:[&!]\S*+(?:\s++|#[^\n]*+)*+)++")  # an anchor and a tag before a scalar
_STRING = "tag:yaml.org,2002:str"
_RESOLVER = Resolver()


@dataclass(slots=True)
class Node:
    """A value; one of a mapping has a key.

    kind: mapping, sequence, scalar, or other for an alias
    begin, end: of a scalar in the text of the file, without its anchor and tag
    text: of a scalar; style: how it is written, such as | or ', empty for a plain one
    is_string: whether a scalar is text and no number, date or the like
    is_flow: whether it is in braces or brackets
    key: the scalar before a value of a mapping; None for a key of another kind
    column: blanks before a scalar that is a key
    """

    kind: str
    begin: int = 0
    end: int = 0
    text: str = ""
    style: str = ""
    is_string: bool = False
    is_flow: bool = False
    key: Node | None = None
    column: int = 0
    members: list[Node] = field(default_factory=list)


def read_documents(text: str) -> list[Node]:
    """Return the values of the documents in a file; raises UnreadableDocument that names line and column."""
    roots: list[Node] = []
    open_nodes: list[Node] = []
    keys: list[Node | None] = []  # of the nodes that are open: a key that waits for its value
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


def _add(node: Node, open_nodes: list[Node], keys: list[Node | None], roots: list[Node]) -> None:
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


def _node(event: Event, text: str) -> Node | None:
    """Return the value that begins with an event; None if none does."""
    if isinstance(event, MappingStartEvent):
        return Node("mapping", is_flow=bool(event.flow_style))
    if isinstance(event, SequenceStartEvent):
        return Node("sequence", is_flow=bool(event.flow_style))
    if isinstance(event, AliasEvent):
        return Node("other")
    if not isinstance(event, ScalarEvent):
        return None
    first, last, style = _mark(event.start_mark), _mark(event.end_mark), event.style or ""
    begin, end = first.index, last.index
    if event.anchor is not None or event.tag is not None:
        properties = _PROPERTIES.match(text, begin, end)
        begin = properties.end() if properties is not None else begin
    tagged = event.tag not in (None, "!", _STRING)
    is_string = not tagged and (bool(style) or event.tag is not None or is_text(event.value))
    return Node("scalar", begin, end, event.value, style, is_string, column=first.column)


def _mark(mark: Mark | PythonMark | None) -> Mark | PythonMark:
    assert mark is not None
    return mark


def is_text(plain: str) -> bool:
    """Whether a plain scalar is text, and no number, truth value, date or the like, by YAML 1.1."""
    return bool(_RESOLVER.resolve(ScalarNode, plain, (True, False)) == _STRING)  # type: ignore[no-untyped-call]


def scalar_of(fragment: str) -> str | None:
    """Return the text of a value as a file would have it; None if it is no scalar."""
    try:
        events = [event for event in parse(f"x: {fragment}", Loader=Loader) if isinstance(event, NodeEvent)]
    except YAMLError:
        return None
    if len(events) != 3 or not isinstance(events[2], ScalarEvent):  # the mapping, its key and its value
        return None
    return str(events[2].value)
