"""Golden sentences: what a bundle translated at its export, and has to translate alike wherever it is served."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from lingon.bundle.schema import MaxLength, SchemaError, parse_dataclass
from lingon.errors import BundleError

MAX_SENTENCES = 64  # sentences, and precisions
MAX_BYTES = 1 << 20

Sentences = Annotated[tuple[str, ...], MaxLength(MAX_SENTENCES)]


@dataclass(frozen=True, slots=True)
class Golden:
    """The content of `golden.json`.

    sentences: sources as they were written
    translations: by precision, the best translation of each with the bundle's defaults
    """

    sentences: Sentences
    translations: Annotated[dict[str, Sentences], MaxLength(MAX_SENTENCES)]

    def to_bytes(self) -> bytes:
        """The file."""
        return (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes, origin: Path) -> Golden:
        """What was written; origin is named in errors. Raises BundleError."""
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
