"""A text that is too large for one call, in two parts that are translated as the whole is."""

from __future__ import annotations

from lingon.segments.document import Split, cut
from lingon.segments.markup import MarkupRules, read_html
from lingon.translation.v1 import translation_pb2 as pb

SPLITS = {
    pb.SENTENCE_SPLITTING_UNSPECIFIED: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_ON: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_NONEWLINES: Split.NONEWLINES,
}
"""Where plain text may be cut."""


def halves(text: str, options: pb.TextOptions, language: str) -> tuple[str, str] | None:
    """Return both parts, cut between sentences or blocks, near the middle; None if there is no such place.

    XML has none: its parts are not well-formed.
    """
    places = _begins(text, options, language)[1:]
    if not places:
        return None
    at = min(places, key=lambda place: abs(2 * place - len(text)))
    return text[:at], text[at:]


def _begins(text: str, options: pb.TextOptions, language: str) -> list[int]:
    """Return where the sentences of plain text begin, and where the blocks of HTML do."""
    if options.format == pb.TEXT_FORMAT_HTML:
        rules = MarkupRules.of(options.ignore_tags, options.splitting_tags, options.non_splitting_tags)
        return [block.begin for block in read_html(text, rules).blocks]
    if options.format == pb.TEXT_FORMAT_XML or options.split_sentences not in SPLITS:
        return []
    return [begin for begin, _ in cut(text, SPLITS[options.split_sentences], language)]
