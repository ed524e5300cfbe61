"""The shortlist of an imported model: its own, one of a file, one that is learned, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lingon.errors import SettingsError
from lingon.export.greedy import Ids, translate_once
from lingon.export.shortlist.build import check_one_pair
from lingon.importers.readers.marian.lexicon import read_lexicon
from lingon.importers.source import ForeignModel
from lingon.text import normalise
from lingon.training.checkpoint import Checkpoint
from lingon.training.data.corpus import Pair
from lingon.training.search import Hypothesis

OWN, LEARN, NONE = "own", "learn", "none"
REMEDY = "serve one pair, as in --languages en:de, or choose none"  # for a model of several languages
MOST_TRANSLATED = 20_000  # sentences that the model translates to learn from; references are all used


def with_shortlist(source: ForeignModel, choice: str) -> ForeignModel:
    """Return a source with the shortlist that a user chooses; without one if it is learned later.

    choice: OWN, LEARN, NONE, or a lexicon in a form of Marian for the vocabularies of the model

    Raises SettingsError if it is none of these, and SourceModelError if the file is no such lexicon.
    """
    if choice == OWN:
        return source
    if choice in (LEARN, NONE):
        if choice == LEARN:
            check_one_pair(source.languages, "--shortlist learn", REMEDY)
        return replace(source, shortlist=None)
    path = Path(choice)
    if not path.is_file():
        raise SettingsError(f"--shortlist must be {OWN}, {LEARN}, {NONE} or a file, got {choice!r}")
    rows = max(source.source.rows) + 1, max(source.target.rows) + 1
    shared = source.source == source.target
    found = read_lexicon(path, source.source, source.target, rows, shared=shared)
    files = (*source.facts.files, path)
    return replace(source, shortlist=found, facts=replace(source.facts, files=files))


def split_pairs(pairs: Sequence[Pair], gates: int, choice: str, origin: Path) -> tuple[Sequence[Pair], Sequence[Pair]]:
    """Return the pairs for the gates, and those after them if a shortlist is learned.

    The gates must not measure a shortlist on text that it was learned from.
    origin: of the pairs. Raises SettingsError if no pair is left to learn from.
    """
    if choice != LEARN:
        return pairs[:gates], ()
    if len(pairs) <= gates:
        raise SettingsError(
            f"--shortlist learn: it learns from the sentences of {origin} after the {gates:,} of the gates, has "
            f"{len(pairs):,} in all"
        )
    return pairs[:gates], pairs[gates:]


def pairs_to_learn(
    checkpoint: Checkpoint, pairs: Sequence[Pair], known: dict[Ids, Hypothesis] | None = None
) -> list[Pair]:
    """Return pairs that have targets: references, or translations of MOST_TRANSLATED sentences by the model itself."""
    referenced = [pair for pair in pairs if pair.target]
    return referenced or own_pairs(checkpoint, pairs[:MOST_TRANSLATED], known)


def own_pairs(checkpoint: Checkpoint, pairs: Sequence[Pair], known: dict[Ids, Hypothesis] | None = None) -> list[Pair]:
    """Return sources with greedy translations by the model; known: see `translate_once`."""
    known = {} if known is None else known
    found = translate_once(checkpoint, [normalise(pair.source) for pair in pairs], known)
    decode = checkpoint.tokenizer.decode
    return [Pair(pair.source, decode(best.tokens)) for pair, best in zip(pairs, found, strict=True)]
