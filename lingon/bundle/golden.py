"""Golden sentences: translations made at export, which the bundle must reproduce when it is loaded to serve."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from lingon.bundle.schema import MaxLength, SchemaError, parse_dataclass
from lingon.errors import BundleError

MAX_SENTENCES = 64  # also the largest number of precisions
MAX_BYTES = 1 << 20  # of golden.json

Sentences = Annotated[tuple[str, ...], MaxLength(MAX_SENTENCES)]


@dataclass(frozen=True, slots=True)
class Golden:
    """The content of `golden.json`.

    sentences: source texts, not normalised
    translations: by precision, the best translation of each sentence with the bundle's default options
    """

    sentences: Sentences
    translations: Annotated[dict[str, Sentences], MaxLength(MAX_SENTENCES)]

    def to_bytes(self) -> bytes:
        """The content of the file."""
        return (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes, origin: Path) -> Golden:
        """Parse the content of the file. Raises BundleError, which names origin."""
        if len(content) > MAX_BYTES:
            raise BundleError(f"{origin}: has {len(content):,} bytes, at most {MAX_BYTES:,} are read")
        try:
            found = parse_dataclass(cls, json.loads(content))
        except SchemaError as error:
            raise BundleError(f"{origin}: {error}") from None
        except (ValueError, RecursionError):
            raise BundleError(f"{origin}: not JSON") from None
        for precision, texts in found.translations.items():
            if not 0 < len(texts) == len(found.sentences):
                raise BundleError(
                    f"{origin}: {len(texts)} translations in {precision[:64]!r} of {len(found.sentences)} sentences"
                )
        return found
