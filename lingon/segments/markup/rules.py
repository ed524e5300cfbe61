"""Which elements split a text, which are left as they are, and which attributes are texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lingon.errors import SettingsError


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BLOCKS = _names("""
    address article aside audio blockquote body br button canvas caption center col colgroup datalist dd desc details
    dialog dir div dl dt fieldset figcaption figure footer foreignobject form frame frameset h1 h2 h3 h4 h5 h6 head
    header hgroup hr html iframe input label legend li link main marquee menu meta nav noembed noframes noscript
    object ol optgroup option p param plaintext pre search section select source summary table tbody td template text
    textarea tfoot th thead title tr track ul video xmp
""")
"""Elements of HTML that split a text: those that a browser shows as blocks or as controls, texts of SVG, and `br`."""

RAW_TEXT = frozenset(["iframe", "noembed", "noframes", "script", "style", "xmp"])
"""Elements of HTML whose content has no tags; it is left as it is."""

UNTOUCHED = frozenset(["code", "pre", "kbd", "samp", "var", "math"]) | RAW_TEXT
"""Elements of HTML whose content is not translated."""

READINGS = frozenset(["rp", "rt", "rtc"])
"""Elements of HTML beside the words that they say how to read; their content is not translated."""

ENDS_IMPLIED = {
    "dd": frozenset(("dd", "dt")),
    "dt": frozenset(("dd", "dt")),
    "li": frozenset(("li",)),
    "option": frozenset(("option",)),
    "td": frozenset(("td", "th")),
    "th": frozenset(("td", "th")),
    "tr": frozenset(("td", "th", "tr")),
    **dict.fromkeys(("rb", "rtc"), READINGS | {"rb"}),
    **dict.fromkeys(("rp", "rt"), frozenset(("rb", "rp", "rt"))),
}
"""By the name of a start tag of HTML: the elements that it ends; every block also ends a paragraph."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkupRules:
    """What a caller says about elements and attributes, by name; HTML has rules of its own for the others.

    ignore_tags: elements whose content is not translated
    splitting_tags: elements at which a text is split
    non_splitting_tags: elements that belong to the sentence around them
    attributes: those whose values are translated, each as a text of its own
    """

    ignore_tags: frozenset[str] = frozenset()
    splitting_tags: frozenset[str] = frozenset()
    non_splitting_tags: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if both := self.splitting_tags & self.non_splitting_tags:
            raise SettingsError(f"{min(both)!r} is in splitting_tags and in non_splitting_tags; leave out one")

    @classmethod
    def of(
        cls,
        ignore_tags: Iterable[str] = (),
        splitting_tags: Iterable[str] = (),
        non_splitting_tags: Iterable[str] = (),
        attributes: Iterable[str] = (),
    ) -> MarkupRules:
        """The rules of lists of names."""
        return cls(
            ignore_tags=frozenset(ignore_tags),
            splitting_tags=frozenset(splitting_tags),
            non_splitting_tags=frozenset(non_splitting_tags),
            attributes=frozenset(attributes),
        )

    def lowered(self) -> MarkupRules:
        """The same rules for names of HTML, whose case does not matter."""
        return MarkupRules.of(
            map(str.lower, self.ignore_tags),
            map(str.lower, self.splitting_tags),
            map(str.lower, self.non_splitting_tags),
            map(str.lower, self.attributes),
        )


NO_RULES = MarkupRules()
