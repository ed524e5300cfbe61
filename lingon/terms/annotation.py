"""Sources that are annotated with terms, as models read them that were trained so: the markers, and where they stand.

An annotated source has the translation of a phrase after the phrase, and three markers around both:

    The <begin> dog <middle> Köter <end> barks.

Dinu et al. (2019) and Exel et al. (2020) write the translation beside the phrase too, but say by a second input of the
encoder, the source factor, which words are which. Markers say it in the vocabulary, so that the model, its graphs and
its runtime are those of any other model. That the phrase stays, instead of being replaced, lets the model read what the
term means. Bogoychev and Chen (2023) train with three markers in these places; theirs is `OPUS_TRAINER_FORM`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from lingon.text import Tokenizer

SPACE = "\u2581"
LONGEST_MARKER = 64  # characters


@dataclass(frozen=True, slots=True)
class AnnotationForm:
    """The markers of an annotated source. Each is one piece of the source vocabulary, alone or with a blank before it.

    begin: before the phrase of the source
    middle: between the phrase and its translation
    end: after the translation
    """

    begin: str
    middle: str
    end: str

    @property
    def markers(self) -> tuple[str, str, str]:
        """The markers in their order."""
        return self.begin, self.middle, self.end

    def problem(self) -> str | None:
        """Return one line about the first marker that cannot be one, or None."""
        for name, marker in zip(("begin", "middle", "end"), self.markers, strict=True):
            if not 1 <= len(marker) <= LONGEST_MARKER:
                return f"terms.{name} must have 1 to {LONGEST_MARKER} characters, got {len(marker)}"
            if any(character.isspace() or character in f",{SPACE}" for character in marker):
                return f"terms.{name} must have no blank, comma or {SPACE}, got {marker!r}"
        if len(set(self.markers)) < len(self.markers):
            return f"terms.begin, middle and end must differ, got {', '.join(map(repr, self.markers))}"
        return None

    def is_in(self, text: str) -> bool:
        """Return whether a text has a marker. It would be read as one, so such a text is not annotated."""
        return any(marker in text for marker in self.markers)


OWN_FORM = AnnotationForm("<term>\u2060", "<as>\u2060", "</term>\u2060")
"""The form of the models that Lingon trains. `lingon.text.normalise` removes U+2060 from every text, so that no text
has these markers.
"""

OPUS_TRAINER_FORM = AnnotationForm("__source__", "__target__", "__done__")
"""The form of the modifier Tags of OpusTrainer, which is used with Marian."""


class Place(NamedTuple):
    """A phrase of a source and its translation; begin, end: code points of the source."""

    begin: int
    end: int
    target: str


def annotated(text: str, places: Iterable[Place], form: AnnotationForm) -> str:
    """Return a source with the translations of phrases beside them; all else of it is unchanged.

    text: normalised, and without a marker
    places: in order and without overlap
    """
    parts, at = list[str](), 0
    for begin, end, target in places:
        before = text[at:begin]
        blank = "" if before.endswith(" ") or not (before or parts) else " "
        parts.append(f"{before}{blank}{form.begin} {text[begin:end]} {form.middle} {target} {form.end}")
        at = end
    return "".join((*parts, text[at:]))


def unread_marker(form: AnnotationForm, tokenizer: Tokenizer) -> str | None:
    """Return the first marker that a tokenizer does not read as one piece of its own, or None."""
    for marker in form.markers:
        pieces = tokenizer.source_pieces(tokenizer.source.encode(marker))
        if [piece.removeprefix(SPACE) for piece in pieces if piece != SPACE] != [marker]:
            return marker
    return None
