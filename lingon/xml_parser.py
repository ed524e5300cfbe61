"""A parser of XML from others: it expands no entity, loads no other file, and its memory is bounded by the file."""

from __future__ import annotations

from collections.abc import Callable
from xml.parsers import expat

from lingon.errors import LingonError

MOST_ADDRESS = 1000  # characters of the address of a namespace: the parser repeats it in each name of an element

Refusal = Callable[[str], LingonError]
"""Returns the error of a file for a message about it."""


def guarded_parser(refusal: Refusal, encoding: str | None = None) -> expat.XMLParserType:
    """Return a parser that raises an error for declarations, for entities, and for long addresses of namespaces.

    refusal: returns the error, such as a class of errors
    encoding: of the file; by default its byte order mark or its declaration says it

    A name has the address of its namespace and a space before it.
    """
    # Without a dictionary of names: those of attributes that are not kept would stay in it.
    parser = expat.ParserCreate(encoding, namespace_separator=" ", intern=None)
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _checking_doctype(refusal)
    parser.SkippedEntityHandler = _refusing_entities(refusal)
    parser.StartNamespaceDeclHandler = _checking_addresses(refusal)
    return parser


def _checking_doctype(refusal: Refusal) -> Callable[[str, str | None, str | None, bool], None]:
    """Return what refuses a document type that declares entities. One that only names a file, as in old books, is not
    loaded.
    """

    def check(_name: str, _system: str | None, _public: str | None, has_declarations: bool) -> None:
        if has_declarations:
            raise refusal("the XML in the file has a document type with declarations, which are not read")

    return check


def _checking_addresses(refusal: Refusal) -> Callable[[str | None, str | None], None]:
    def check(_prefix: str | None, address: str | None) -> None:
        if address is not None and len(address) > MOST_ADDRESS:
            size = f"{len(address):,} characters; at most {MOST_ADDRESS:,}"
            raise refusal(f"the XML in the file has a namespace with an address of {size}")

    return check


def _refusing_entities(refusal: Refusal) -> Callable[[str, bool], None]:
    def refuse(name: str, _is_parameter: bool) -> None:
        raise refusal(f"the XML in the file has the entity {name[:40]}, which is not declared in it")

    return refuse
