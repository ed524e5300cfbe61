"""Golden sentences: translations and alignments of the export, which a bundle must reproduce when it is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from lingon.bundle.schema import MaxLength, Pattern, SchemaError, parse_dataclass
from lingon.errors import BundleError

MAX_SENTENCES = 64  # also the largest number of precisions
MAX_BYTES = 1 << 20  # of golden.json

_LINK = r"(\d{1,7})-(\d{1,7}):(\d\.\d{3})"
Sentences = Annotated[tuple[str, ...], MaxLength(MAX_SENTENCES)]
AlignmentText = Annotated[str, Pattern(rf"({_LINK}( {_LINK})*)?", "links as in 0-4:0.913 4-0:0.870")]
PairText = Annotated[str, Pattern(r"[A-Za-z0-9_-]{2,64} [A-Za-z0-9_-]{2,64}", "two languages as in en fr")]
Alignments = Annotated[tuple[AlignmentText, ...], MaxLength(MAX_SENTENCES)]
GoldenLink = tuple[int, int, float]
"""The first code points of a source piece and of a target piece, and the attention weight of the link."""


@dataclass(frozen=True, slots=True)
class Golden:
    """The content of `golden.json`.

    sentences: source texts, not normalised
    translations: by precision, the best translation of each sentence with the bundle's default options
    alignments: by precision, the alignment of each translation. See `alignment_text`.
    pairs: of a bundle of several languages, the source and the target language of each sentence, as in "en fr"
    """

    sentences: Sentences
    translations: Annotated[dict[str, Sentences], MaxLength(MAX_SENTENCES)]
    alignments: Annotated[dict[str, Alignments], MaxLength(MAX_SENTENCES)] = field(default_factory=dict)
    pairs: Annotated[tuple[PairText, ...], MaxLength(MAX_SENTENCES)] = ()

    @property
    def languages(self) -> list[tuple[str, str]]:
        """The pair of each sentence, empty for a bundle of one pair."""
        found = (text.split(" ") for text in self.pairs)
        return [(source, target) for source, target in found]

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        values = asdict(self)
        if not self.pairs:
            del values["pairs"]
        return (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes, origin: Path) -> Golden:
        """Parse the content of the file. Raises BundleError, which names origin."""
        if len(content) > MAX_BYTES:
            raise BundleError(f"{origin}: has {len(content):,} bytes, at most {MAX_BYTES:,} are read")
        try:
            values = json.loads(content)
            found = parse_dataclass(cls, {"pairs": [], **values} if isinstance(values, dict) else values)
        except SchemaError as error:
            raise BundleError(f"{origin}: {error}") from None
        except (ValueError, RecursionError):
            raise BundleError(f"{origin}: not JSON") from None
        for kind, by_precision in (("translations", found.translations), ("alignments", found.alignments)):
            for precision, texts in by_precision.items():
                if not 0 < len(texts) == len(found.sentences):
                    raise BundleError(
                        f"{origin}: {len(texts)} {kind} in {precision[:64]!r} of {len(found.sentences)} sentences"
                    )
        if len(found.pairs) not in (0, len(found.sentences)):
            raise BundleError(f"{origin}: {len(found.pairs)} pairs of {len(found.sentences)} sentences")
        if extra := sorted(found.alignments.keys() - found.translations.keys()):
            raise BundleError(f"{origin}: alignments in {extra[0][:64]!r} without translations")
        return found


def alignment_text(links: Iterable[GoldenLink]) -> str:
    """Return an alignment as text: SOURCE-TARGET:WEIGHT for each link, separated by spaces."""
    return " ".join(f"{source}-{target}:{weight:.3f}" for source, target, weight in links)


def alignment_links(text: str) -> list[GoldenLink]:
    """Return the links of an alignment that `alignment_text` wrote."""
    return [(int(source), int(target), float(weight)) for source, target, weight in re.findall(_LINK, text)]
