"""Reads HTML and XML."""

from __future__ import annotations

from lingon.segments.markup.blocks import References, blocks_of, blocks_of_attributes
from lingon.segments.markup.document import Markup
from lingon.segments.markup.items import with_signs
from lingon.segments.markup.rules import NO_RULES, MarkupRules
from lingon.segments.markup.structure import Structure, structure_of
from lingon.segments.markup.tokens.html import html_tokens
from lingon.segments.markup.tokens.references import html_references, xml_references
from lingon.segments.markup.tokens.xml import xml_tokens


def read_html(text: str, rules: MarkupRules = NO_RULES) -> Markup:
    """Read HTML as browsers do; any text is HTML.

    Elements that browsers show as blocks split the text, and so does `br`; all others are inline.
    """
    rules = rules.lowered()
    structure = structure_of(text, with_signs(text, html_tokens(text)), rules, html=True)
    return _markup(text, structure, rules, html_references)


def read_xml(text: str, rules: MarkupRules = NO_RULES) -> Markup:
    """Read well-formed XML, a document or a part of one; raises MarkupError for another text.

    An element is inline if there is text beside it or beside an element around it; all others split the text.
    """
    structure = structure_of(text, xml_tokens(text), rules, html=False)
    return _markup(text, structure, rules, xml_references)


def _markup(text: str, structure: Structure, rules: MarkupRules, references: References) -> Markup:
    blocks = list(blocks_of(text, structure, references))
    if rules.attributes:
        blocks += blocks_of_attributes(text, structure, rules.attributes, references)
        blocks.sort(key=lambda block: block.begin)
    return Markup(text, tuple(blocks), structure.html)
