"""The sentences of a verification: those of the user, or the golden sentences of the bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lingon.bundle import Bundle
from lingon.errors import BundleError, SettingsError
from lingon.lines import read_parallel
from lingon.serving.models.golden import golden_of
from lingon.text import Tokenizer, normalise

Pairs = Sequence[tuple[str, str]]
"""Sources and their reference translations."""


@dataclass(frozen=True, slots=True)
class Text:
    """Sentences that the model can read.

    sources: ids with EOS
    references: of each source; None for golden sentences, which have none
    """

    tokenizer: Tokenizer
    sources: list[tuple[int, ...]]
    references: list[str] | None

    def first(self, count: int) -> Text:
        """The first sentences."""
        return Text(self.tokenizer, self.sources[:count], self.references and self.references[:count])


def read_gate_data(source: Path, target: Path) -> Pairs:
    """Read pairs, without those that have an empty side. Raises CorpusError or SettingsError."""
    pairs = [(normalise(one), normalise(other)) for one, other in read_parallel(source, target)]
    found = [pair for pair in pairs if all(pair)]
    if not found:
        raise SettingsError(f"--gate-data {source}: has no pair of sentences")
    return found


def text_of(bundle: Bundle, pairs: Pairs | None, count: int) -> Text:
    """Return at most `count` sentences that are not too long: the first of pairs, or golden sentences without pairs.

    Raises SettingsError if there is none.
    """
    tokenizer, longest = Tokenizer(*bundle.tokenizer_files()), bundle.manifest.limits.max_source_tokens
    given = [(text, "") for text in _golden_sentences(bundle)] if pairs is None else pairs
    encoded = [(tuple(tokenizer.encode_source(normalise(source))), target) for source, target in given]
    readable = [(ids, target) for ids, target in encoded if len(ids) <= longest][:count]
    if not readable:
        raise SettingsError(f"--gate-data: none of {len(given):,} sources has at most {longest} tokens")
    references = None if pairs is None else [target for _, target in readable]
    return Text(tokenizer, [ids for ids, _ in readable], references)


def _golden_sentences(bundle: Bundle) -> Sequence[str]:
    golden = golden_of(bundle)
    if golden is None:
        raise BundleError(f"{bundle.folder}: has no golden sentences; give sentences with --gate-data SOURCE TARGET")
    return golden.sentences
