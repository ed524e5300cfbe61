"""The sentences of a verification: those of the user, or the golden sentences of the bundle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from lingon.bundle import Bundle
from lingon.errors import BundleError, SettingsError
from lingon.lines import read_parallel
from lingon.serving.models.golden import golden_of
from lingon.text import Tokenizer, normalise

MOST_NAMED = 10  # pairs in a message

Pairs = Sequence[tuple[str, str]]
"""Sources and their reference translations."""

LanguagePair = tuple[str, str]
"""A source and a target language of a bundle, as its manifest writes them."""


@dataclass(frozen=True, slots=True)
class Text:
    """Sentences that the model can read.

    tokenizer: writes the tokens of the pair of languages, if the bundle has several
    sources: ids as the tokenizer frames them
    references: of each source; None for golden sentences, which have none
    language: of the translations, for the tokens of BLEU
    """

    tokenizer: Tokenizer
    sources: list[tuple[int, ...]]
    references: list[str] | None
    language: str

    @property
    def forced(self) -> tuple[int, ...]:
        """The target tokens that every translation begins with, and that are not part of it."""
        return self.tokenizer.languages.forced

    def first(self, count: int) -> Text:
        """The first sentences."""
        return replace(self, sources=self.sources[:count], references=self.references and self.references[:count])


def read_gate_data(source: Path, target: Path) -> Pairs:
    """Read pairs, without those that have an empty side. Raises CorpusError or SettingsError."""
    pairs = [(normalise(one), normalise(other)) for one, other in read_parallel(source, target)]
    found = [pair for pair in pairs if all(pair)]
    if not found:
        raise SettingsError(f"--gate-data {source}: has no pair of sentences")
    return found


def pair_of(bundle: Bundle, named: str | None) -> LanguagePair | None:
    """Return the pair to check of a bundle of several languages: the named one, else that of the first golden sentence.

    Without golden sentences it is the first pair of the manifest. None is the pair of a bundle of one.

    named: as in en:de. Raises SettingsError if the bundle does not serve it.
    """
    languages = bundle.manifest.languages
    if languages is None:
        if named is not None:
            raise SettingsError(f"--languages {named}: {bundle.label} is of one pair, so that none can be named")
        return None
    if named is None:
        golden = golden_of(bundle)
        return golden.languages[0] if golden and golden.languages else next(languages.pairs())
    for pair in languages.pairs():
        if ":".join(pair).lower() == named.lower():
            return pair
    pairs = [":".join(pair) for pair in islice(languages.pairs(), MOST_NAMED)]
    raise SettingsError(f"--languages {named}: {bundle.label} has no such pair; it has {', '.join(pairs)}, ...")


def text_of(bundle: Bundle, pairs: Pairs | None, count: int, languages: LanguagePair | None = None) -> Text:
    """Return at most `count` sentences that are not too long: the first of pairs, or golden sentences without pairs.

    languages: of a bundle of several languages, the pair of the sentences; its golden sentences are those in the source
        language, whatever they are translated into

    Raises SettingsError if there is none.
    """
    tokenizer, longest = bundle.tokenizer(), bundle.manifest.limits.max_source_tokens
    if languages is not None and bundle.manifest.languages is not None:
        tokenizer = tokenizer.for_languages(bundle.manifest.languages.tokens(*languages))
    given = [(text, "") for text in _golden_sentences(bundle, languages)] if pairs is None else pairs
    encoded = [(tuple(tokenizer.encode_source(normalise(source))), target) for source, target in given]
    readable = [(ids, target) for ids, target in encoded if len(ids) <= longest][:count]
    if not readable:
        raise SettingsError(f"--gate-data: none of {len(given):,} sources has at most {longest} tokens")
    references = None if pairs is None else [target for _, target in readable]
    language = languages[1] if languages else bundle.manifest.target_language
    return Text(tokenizer, [ids for ids, _ in readable], references, language)


def _golden_sentences(bundle: Bundle, languages: LanguagePair | None) -> Sequence[str]:
    golden = golden_of(bundle)
    if golden is None:
        raise BundleError(f"{bundle.folder}: has no golden sentences; give sentences with --gate-data SOURCE TARGET")
    if languages is None or not golden.pairs:
        return golden.sentences
    found = [
        text for text, (source, _) in zip(golden.sentences, golden.languages, strict=True) if source == languages[0]
    ]
    if not found:
        raise SettingsError(
            f"{bundle.folder}: has no golden sentences in {languages[0]}; give some with --gate-data SOURCE TARGET"
        )
    return found
