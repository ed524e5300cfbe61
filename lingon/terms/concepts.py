"""Terms in XML: TBX, version 2 and 3, and TMX 1.4.

A concept of TBX has terms in several languages. Each term of the source language gets the preferred one of the target
language, or else the first; the others are its variants. Those that are deprecated or superseded are forbidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from xml.parsers import expat

from lingon.errors import CorpusError
from lingon.language_tags import is_same_language, is_same_tag
from lingon.terms.term import Term, TermError, shown
from lingon.xml_parser import guarded_parser

LANGUAGE = "http://www.w3.org/XML/1998/namespace lang"
MOST_DEPTH = 64  # of elements inside each other
MOST_NODES = 10_000  # elements and texts of an entry
MOST_SHOWN = 10  # languages that an error names

ENTRIES = ("conceptEntry", "termEntry", "tu")
"""The names of the elements that are entries: of TBX 3, of TBX 2 and of TMX."""

LANGUAGES = ("langSec", "langSet", "tuv")
TERMS = ("termSec", "tig", "ntig")
CODES = ("bpt", "ept", "it", "ph", "ut")
"""The names of the elements of TMX whose content is markup, not text."""

PREFERRED, DEPRECATED, SUPERSEDED = (
    f"{each}-admn-sts" for each in ("preferredTerm", "deprecatedTerm", "supersededTerm")
)
"""What TBX says about a term."""

WRONG = (DEPRECATED, SUPERSEDED)

STATUS = "administrativeStatus"


@dataclass(frozen=True, slots=True)
class Section:
    """What an entry has in one language: its tag, and terms with what the file says about each, see STATUS."""

    language: str
    terms: tuple[tuple[str, str], ...]


Entry: TypeAlias = tuple[Section, ...]


@dataclass(slots=True)
class Node:
    """An element of an entry: its name without the namespace, its attributes, and its elements and texts."""

    name: str
    attributes: Mapping[str, str]
    children: list[Node | str] = field(default_factory=list)

    def all(self, *names: str) -> Iterator[Node]:
        """Yield the elements of these names in it, at any depth."""
        for child in self.children:
            if isinstance(child, Node):
                if child.name in names:
                    yield child
                yield from child.all(*names)

    @property
    def text(self) -> str:
        """The text in it without markup, with one space for each run of white space."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for child in self.children:
            if isinstance(child, str):
                yield child
            elif child.name not in CODES:
                yield from child._texts()


class ConceptReader:
    """A reader of the entries of a file, of which one at a time is kept as elements.

    root: the attributes of the root, once it was read; header: those of the header of TMX
    """

    def __init__(self, name: str) -> None:
        """name: of the file, for the errors."""
        self.root: Mapping[str, str] = {}
        self.header: Mapping[str, str] = {}
        self.entries: list[Entry] = []
        self._name = name
        self._open: list[Node] = []  # the entry, and what is open in it
        self._depth = self._nodes = 0

    def read(self, content: bytes) -> None:
        """Read a whole file. Raises CorpusError."""
        parser = guarded_parser(lambda problem: CorpusError(f"{self._name}: {problem}"))
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            place = f"line {error.lineno:,}, column {error.offset + 1:,}"
            problem = expat.ErrorString(error.code)
            raise CorpusError(f"{self._name}: {place}: the XML is not well-formed: {problem}") from None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise CorpusError(f"{self._name}: has elements in more than {MOST_DEPTH} others")
        if self._depth == 1:
            if local not in ("tbx", "martif", "tmx"):
                raise CorpusError(
                    f"{self._name}: must be TBX or TMX, whose roots are tbx, martif and tmx, got {local:.40}"
                )
            self.root = attributes
        elif local == "header":
            self.header = attributes
        if self._open or local in ENTRIES:
            node = Node(local, attributes)
            self._add(node)
            self._open.append(node)

    def _end(self, _name: str) -> None:
        self._depth -= 1
        if self._open:
            entry = self._open.pop()
            if not self._open:
                self.entries.append(_sections(entry))
                self._nodes = 0

    def _text(self, text: str) -> None:
        if self._open:
            self._add(text)

    def _add(self, child: Node | str) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise TermError(len(self.entries) + 1, f"has more than {MOST_NODES:,} elements and texts")
        if self._open:
            self._open[-1].children.append(child)


def read_concepts(name: str, content: bytes, source: str, target: str) -> Iterator[tuple[int, Term]]:
    """Yield the terms of a file with the numbers of their entries, unchecked.

    name: of the file, for the errors; source, target: BCP-47. One that is empty is what the file says that it is
    translated from, or the only other language
    Entries without a term in both languages are left out. Raises TermError, and CorpusError for a bad file.
    """
    reader = ConceptReader(name)
    reader.read(content)
    tags = list(dict.fromkeys(each.language for entry in reader.entries for each in entry if each.language))
    source = source or _stated_source(reader, tags, target)
    target = target or _only_other(tags, source)
    if reader.entries and not (source and target):
        raise CorpusError(f"{name}: has the languages {_listed(tags)}; say which is the source and which the target")
    found = False
    for number, entry in enumerate(reader.entries, start=1):
        sources, targets = (_of_language(entry, language) for language in (source, target))
        if sources and targets:
            found = True
            yield from ((number, term) for term in _terms_of(number, sources, targets))
    if reader.entries and not found:
        raise CorpusError(f"{name}: has no entry in {source} and {target}; its languages are {_listed(tags)}")


def _listed(tags: Sequence[str]) -> str:
    return (", ".join(tags[:MOST_SHOWN]) or "none") + (", ..." if len(tags) > MOST_SHOWN else "")


def _stated_source(reader: ConceptReader, tags: Sequence[str], target: str) -> str:
    """Return the language that a file says it is translated from, or the only one beside the target, or nothing."""
    stated = reader.header.get("srclang") or reader.root.get(LANGUAGE) or reader.root.get("lang", "")
    if any(is_same_language(tag, stated) for tag in tags) and not is_same_language(stated, target):
        return stated
    return _only_other(tags, target)


def _only_other(tags: Sequence[str], language: str) -> str:
    others = [tag for tag in tags if language and not is_same_language(tag, language)]
    return others[0] if len({tag.lower() for tag in others}) == 1 else ""


def _of_language(entry: Entry, language: str) -> list[tuple[str, str]]:
    """Return the terms of an entry in a language: those with its tag, or else with another region or script."""
    same = [term for each in entry if is_same_tag(each.language, language) for term in each.terms]
    return same or [term for each in entry if is_same_language(each.language, language) for term in each.terms]


def _terms_of(number: int, sources: Sequence[tuple[str, str]], targets: Sequence[tuple[str, str]]) -> Iterator[Term]:
    """Yield a term for each one of the source language."""
    right = [text for text, status in targets if status not in WRONG]
    right.sort(key=lambda text: (text, PREFERRED) not in targets)
    wrong = dict.fromkeys(text for text, status in targets if status in WRONG and text not in right)
    target, *variants = dict.fromkeys(right) or [""]
    for source in dict.fromkeys(text for text, _ in sources):
        if not (target or wrong):
            raise TermError(number, f"{shown(source)} has no target")
        yield Term(source, target, tuple(variants), forbid=tuple(wrong))


def _sections(entry: Node) -> Entry:
    return tuple(Section(_language(each), tuple(_rated(each))) for each in entry.all(*LANGUAGES))


def _language(section: Node) -> str:
    return section.attributes.get(LANGUAGE) or section.attributes.get("lang", "")  # the second one until TMX 1.3


def _rated(section: Node) -> Iterator[tuple[str, str]]:
    """Yield the terms of a section, with what the file says about each."""
    for segment in section.all("seg"):
        yield segment.text, ""
    for group in section.all(*TERMS):
        for term in group.all("term"):
            yield term.text, _status(group)


def _status(group: Node) -> str:
    """Return the administrative status of a term: in a note with this type, or in an element of this name."""
    notes = [each for each in group.all("termNote") if each.attributes.get("type") == STATUS]
    text = next((each.text for each in (*notes, *group.all(STATUS))), "")
    return text if text.endswith("-admn-sts") or not text else f"{text}-admn-sts"
