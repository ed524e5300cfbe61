"""The tasks of a preparation that processes do: lines become a work shard, and a work shard becomes a shard.

A task writes one file, whole or not at all. Equal tasks write equal bytes, wherever they run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lingon.alignment import WordLink, parse_links
from lingon.moses import MosesPieces
from lingon.text import LanguageTokens, normalise
from lingon.training.config import DataSettings, LanguagePair, pair_name
from lingon.training.corpus import normalised_links
from lingon.training.corpus_files import read_tokenizer, write_bytes
from lingon.training.filters import TOKEN_RATIO, PairFilters, folded
from lingon.training.parallel_text import RawBlock
from lingon.training.prepared import Example, Shard, list_column, shard_bytes, text_column

if TYPE_CHECKING:
    from lingon.text import Segmenter

EXAMPLES = 5
"""Pairs that are kept of those that a filter drops of a corpus."""

MOST_SHOWN = 200  # characters of an example


@dataclass(slots=True)
class DroppedPairs:
    """How many pairs were dropped for each reason, and the first of them."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[Example]] = field(default_factory=dict)

    def add(self, reason: str, row: int, source: str, target: str) -> None:
        """Count a pair; row: its number in the corpus, from 0."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        shown = self.examples.setdefault(reason, [])
        if len(shown) < EXAMPLES:
            shown.append(Example(row=row + 1, source=_shown(source), target=_shown(target)))

    def add_rows(self, reason: str, shard: Shard, rows: Sequence[int]) -> None:
        """Count pairs of a work shard. Only those that are shown are read."""
        shown = rows[: EXAMPLES - len(self.examples.get(reason, ()))]
        for row in shown:
            self.add(reason, int(shard.numbers("row")[row]), shard.source_text[row], shard.target_text[row])
        if len(rows) > len(shown):
            self.counts[reason] += len(rows) - len(shown)

    def include(self, saved: dict[str, Any]) -> None:
        """Add what `as_json` has returned for later pairs of the corpus."""
        for reason, count in saved["dropped"].items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            shown = self.examples.setdefault(reason, [])
            shown += map(Example.model_validate, saved["examples"][reason][: EXAMPLES - len(shown)])

    def as_json(self) -> dict[str, Any]:
        """Return counts and examples."""
        shown = {reason: [each.model_dump() for each in found] for reason, found in self.examples.items()}
        return {"dropped": self.counts, "examples": shown}


def _shown(text: str) -> str:
    """Return the start of a text, for an example."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class FilterTask:
    """What turns lines into work shards: texts that pass the filters, normalised, with a hash of 128 bits of each pair.

    languages: of each corpus
    held_out: normalised texts of validation and test sets
    alignments: the file of each corpus, for errors
    """

    folder: Path
    data: DataSettings
    languages: tuple[LanguagePair, ...]
    held_out: frozenset[str]
    alignments: tuple[str, ...]

    def __call__(self, corpus: int, name: str, lines: RawBlock) -> int:
        """Write the work shard of lines of a corpus and return their number. Raises CorpusError for a wrong link."""
        dropped, languages = DroppedPairs(), self.languages[corpus]
        sources, targets = list(map(normalise, lines.sources)), list(map(normalise, lines.targets))
        reasons = PairFilters(self.data, languages).reasons_of(sources, targets, lines.scores)
        rows = []
        for row, reason in enumerate(reasons):
            if reason or sources[row] in self.held_out or targets[row] in self.held_out:
                dropped.add(reason or "held out", lines.first + row, sources[row], targets[row])
            else:
                rows.append(row)
        links = None if lines.links is None else [self._links(corpus, lines, row) for row in range(len(sources))]
        sources, targets = [sources[row] for row in rows], [targets[row] for row in rows]
        columns = {
            "row": pa.array(lines.first + np.array(rows, np.uint64)),
            "source_text": text_column(sources),
            "target_text": text_column(targets),
            **_keys("key", sources, targets, languages),
        }
        if self.data.filters.near_duplicates:
            columns |= _keys("near", list(map(folded, sources)), list(map(folded, targets)), languages)
        if links is not None:
            columns["links"] = _links_column([links[row] for row in rows])
        facts = {"lines": len(lines.sources), **dropped.as_json()}
        write_bytes(self.folder / name, shard_bytes(columns, facts))
        return len(lines.sources)

    def _links(self, corpus: int, lines: RawBlock, row: int) -> Sequence[WordLink]:
        assert lines.links is not None
        where = f"{self.alignments[corpus]}:{lines.first + row + 1}"
        possible = parse_links(lines.links[row], where).possible
        return normalised_links(possible, lines.sources[row], lines.targets[row], where)


def _keys(name: str, sources: list[str], targets: list[str], languages: LanguagePair) -> dict[str, pa.Array]:
    """Return two columns with the halves of a hash of 128 bits of each pair: equal pairs have equal ones."""
    both, pair = bytearray(), pair_name(languages)
    for source, target in zip(sources, targets, strict=True):
        both += hashlib.blake2b(f"{source}\n{target}\n{pair}".encode(), digest_size=16).digest()
    halves = np.frombuffer(both, "<u8").reshape(-1, 2)
    return {name: pa.array(halves[:, 0].copy()), f"{name}_end": pa.array(halves[:, 1].copy())}


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """What turns work shards into shards.

    work, folder: where work shards are, and where shards and the tokenizer are
    tokens, languages: of each corpus
    """

    work: Path
    folder: Path
    data: DataSettings
    tokens: tuple[LanguageTokens, ...]
    languages: tuple[LanguagePair, ...]

    def __call__(self, corpus: int, name: str, kept: NDArray[np.bool_]) -> int:
        """Write the shard of a corpus with those pairs of its work shard that are kept. Return how many there were."""
        work, tokenizer = Shard(self.work / name), read_tokenizer(self.folder)
        rows = np.flatnonzero(kept)
        sources, targets = ([texts[row] for row in rows.tolist()] for texts in (work.source_text, work.target_text))
        source_ids, target_ids = _encoded(tokenizer.source, sources), _encoded(tokenizer.target, targets)
        lengths = pair_lengths(source_ids, target_ids, self.tokens[corpus])
        filters, numbers = PairFilters(self.data, self.languages[corpus]), work.numbers("row")
        dropped, places = DroppedPairs(), list[int]()
        for place, (source, target) in enumerate(lengths.tolist()):
            reason = "length" if max(source, target) > self.data.max_tokens else ""
            if not reason and filters.too_long_ratio(source, target):
                reason = TOKEN_RATIO
            if reason:
                dropped.add(reason, int(numbers[rows[place]]), sources[place], targets[place])
            else:
                places.append(place)
        sources, targets = [sources[place] for place in places], [targets[place] for place in places]
        columns = {
            "source": _ids_column([source_ids[place] for place in places], tokenizer.source_vocab),
            "target": _ids_column([target_ids[place] for place in places], tokenizer.target_vocab),
            "source_text": text_column(sources),
            "target_text": text_column(targets),
        }
        digest, linked = hashlib.sha256(pair_name(self.languages[corpus]).encode()), 0
        digest.update(
            "".join(f"{source}\n{target}\n" for source, target in zip(sources, targets, strict=True)).encode()
        )
        if work.links is not None:
            links = [[*map(tuple, work.links[row].reshape(-1, 2).tolist())] for row in rows[places].tolist()]
            columns["links"] = _links_column(links)
            linked = sum(map(bool, links))
            digest.update(json.dumps(links).encode())
        tokens = lengths[places].sum(axis=0).tolist()
        facts = {"tokens": tokens, "linked": linked, "digest": digest.hexdigest(), **dropped.as_json()}
        write_bytes(self.folder / name, shard_bytes(columns, facts))
        return len(work)


def _encoded(model: Segmenter, texts: list[str]) -> list[list[int]]:
    """Return the token ids of texts, on one thread: other processes have the other cores."""
    return model.encode(texts) if isinstance(model, MosesPieces) else model.encode(texts, num_threads=1)


def pair_lengths(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], tokens: LanguageTokens
) -> NDArray[np.int64]:
    """Return source and target lengths (pairs, 2), with the end token and the tokens of the languages."""
    found: NDArray[np.int64] = np.array([*map(len, sources), *map(len, targets)], np.int64).reshape(2, -1).T
    return found + framing(tokens)


def framing(tokens: LanguageTokens) -> NDArray[np.int64]:
    """Return how many tokens a source and a target have beside the pieces of their texts, (2)."""
    return np.array([1 + len(tokens.before) + len(tokens.after), 1 + len(tokens.forced)])


def _ids_column(ids: Sequence[Sequence[int]], vocab: int) -> pa.Array:
    """Return lists of token ids as a column, of 16 bits where they suffice."""
    kind: type[np.unsignedinteger[Any]] = np.uint16 if vocab <= 2**16 else np.uint32
    return list_column(np.cumsum([0, *map(len, ids)]), np.fromiter(chain.from_iterable(ids), kind))


def _links_column(links: Sequence[Sequence[WordLink]]) -> pa.Array:
    """Return links as a column of lists: source word, target word, source word, and so on."""
    flat = np.array([word for each in links for link in each for word in link], np.uint32)
    return list_column(np.cumsum([0, *(2 * len(each) for each in links)]), flat)
