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
from lingon.files import write_bytes
from lingon.moses import MosesPieces
from lingon.text import LanguageTokens, Tokenizer, normalise
from lingon.training.config import DataSettings, LanguagePair, pair_name
from lingon.training.corpus import normalised_links
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
            shown.append(Example(row=row + 1, source=source[:MOST_SHOWN], target=target[:MOST_SHOWN]))

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


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a corpus that follow each other.

    corpus: its number
    name: of the shard that they become
    first: the number of the first of them in the corpus, from 0
    links: lines of the alignment file, or None if training reads no links of this corpus
    scores: of the lines, or None if the corpus has none
    """

    corpus: int
    name: str
    first: int
    sources: list[str]
    targets: list[str]
    links: list[str] | None
    scores: list[float] | None


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

    def __call__(self, lines: Lines) -> int:
        """Write the work shard of some lines and return their number. Raises CorpusError for a wrong link."""
        dropped, language = DroppedPairs(), pair_name(self.languages[lines.corpus])
        rows, sources, targets, links = list[int](), list[str](), list[str](), list[Sequence[WordLink]]()
        keys = bytearray()
        for row, pair in enumerate(zip(lines.sources, lines.targets, strict=True)):
            source, target = map(normalise, pair)
            found = self._links(lines, row) if lines.links is not None else ()
            if reason := self._reason(source, target):
                dropped.add(reason, lines.first + row, source, target)
                continue
            rows.append(lines.first + row)
            sources.append(source)
            targets.append(target)
            links.append(found)
            keys += hashlib.blake2b(f"{source}\n{target}\n{language}".encode(), digest_size=16).digest()
        both = np.frombuffer(keys, "<u8").reshape(-1, 2)
        columns = {
            "row": pa.array(np.array(rows, np.uint64)),
            "source_text": text_column(sources),
            "target_text": text_column(targets),
            "key": pa.array(np.ascontiguousarray(both[:, 0])),
            "key_end": pa.array(np.ascontiguousarray(both[:, 1])),
        }
        if lines.links is not None:
            columns["links"] = _links_column(links)
        facts = {"lines": len(lines.sources), **dropped.as_json()}
        write_bytes(self.folder / lines.name, shard_bytes(columns, facts))
        return len(lines.sources)

    def _links(self, lines: Lines, row: int) -> Sequence[WordLink]:
        assert lines.links is not None
        where = f"{self.alignments[lines.corpus]}:{lines.first + row + 1}"
        possible = parse_links(lines.links[row], where).possible
        return normalised_links(possible, lines.sources[row], lines.targets[row], where)

    def _reason(self, source: str, target: str) -> str:
        """Return the filter that drops a pair, or an empty string."""
        shorter, longer = sorted((len(source), len(target)))
        if not shorter:
            return "empty"
        if longer > self.data.max_ratio * shorter + 25:  # the ratio of short sentences varies much
            return "ratio"
        return "held out" if source in self.held_out or target in self.held_out else ""


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """What turns work shards into shards.

    work, folder: where work shards are, and where shards and the tokenizer are
    tokens, languages: of each corpus
    max_tokens: on each side, with the end token and the tokens of the languages
    """

    work: Path
    folder: Path
    tokens: tuple[LanguageTokens, ...]
    languages: tuple[LanguagePair, ...]
    max_tokens: int

    def __call__(self, corpus: int, name: str, kept: NDArray[np.bool_]) -> int:
        """Write the shard of a corpus with those pairs of its work shard that are kept. Return how many there were."""
        work, tokenizer = Shard(self.work / name), Tokenizer.read(self.folder)
        rows = np.flatnonzero(kept)
        sources, targets = ([texts[row] for row in rows.tolist()] for texts in (work.source_text, work.target_text))
        source_ids, target_ids = _encoded(tokenizer.source, sources), _encoded(tokenizer.target, targets)
        lengths = pair_lengths(source_ids, target_ids, self.tokens[corpus])
        short = lengths.max(axis=1, initial=0) <= self.max_tokens
        dropped, numbers = DroppedPairs(), work.numbers("row")
        for place in np.flatnonzero(~short).tolist():
            dropped.add("length", int(numbers[rows[place]]), sources[place], targets[place])
        places = np.flatnonzero(short).tolist()
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
        tokens = lengths[short].sum(axis=0).tolist()
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
