"""A prepared corpus: a folder of shards, which training maps into memory, and the manifest that says what they hold.

A shard is a file of Arrow IPC with the pairs of at most ROWS lines of one corpus: token ids, texts, links. Arrow keeps
all columns of a shard in one file that is mapped without a copy, and other tools (pandas, Polars, DuckDB, Ray Data)
read it. Processes of one machine share the mapped pages. `lengths.npy` has the lengths of all pairs, which an epoch is
planned from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import ValidationError

from lingon.alignment import WordLink
from lingon.errors import CorpusError
from lingon.object_stores import is_url, open_parts, url_of
from lingon.text import Tokenizer
from lingon.training.config import MANIFEST, LanguagePair
from lingon.training.corpus import FilterCounts, Pair
from lingon.training.corpus_files import read_array, read_json, read_tokenizer
from lingon.training.model_settings import SettingsBlock

LENGTHS = "lengths.npy"
ROWS = 2**16
"""Lines of a corpus that one shard is made of."""


class InputFile(SettingsBlock):
    """A file that the corpus was prepared from; key: of the config, such as data.train.0.source."""

    key: str
    path: Path
    size: int  # bytes
    modified: int  # nanoseconds since 1970
    sha256: str


class Example(SettingsBlock):
    """A pair that a filter has dropped; row: its number in the corpus, from 1."""

    row: int
    source: str
    target: str


class CorpusFacts(SettingsBlock):
    """What became of the pairs of a corpus."""

    name: str
    languages: LanguagePair
    read: int
    kept: int
    linked: int  # pairs kept that have links
    source_tokens: int  # of the pairs kept, with the end tokens
    target_tokens: int
    dropped: dict[str, int]  # by filter
    examples: dict[str, tuple[Example, ...]]  # likewise

    @property
    def counts(self) -> FilterCounts:
        """How many pairs were read and dropped."""
        return FilterCounts(self.read, dict(self.dropped))


class ShardFacts(SettingsBlock):
    """A shard; digest: SHA-256 of its pairs and their languages."""

    name: str
    pairs: int
    digest: str


class Manifest(SettingsBlock):
    """What a prepared corpus holds, and what it was made from."""

    version: int
    settings: dict[str, Any]  # those that decide what the shards hold
    inputs: tuple[InputFile, ...]
    tokenizer: dict[str, str]  # SHA-256 of its files
    corpora: tuple[CorpusFacts, ...]
    shards: tuple[ShardFacts, ...]


VERSION = 1


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Texts of a shard in UTF-8; offsets: (pairs + 1) bytes."""

    offsets: NDArray[np.int64]
    content: memoryview

    def __getitem__(self, row: int) -> str:
        """Return a text."""
        return str(self.content[self.offsets[row] : self.offsets[row + 1]], "utf-8")


@dataclass(frozen=True, slots=True)
class IdColumn:
    """Lists of numbers of a shard; offsets: (pairs + 1); values: all lists, one after the other."""

    offsets: NDArray[np.int32]
    values: NDArray[Any]

    def __getitem__(self, row: int) -> NDArray[Any]:
        """Return a list."""
        return self.values[self.offsets[row] : self.offsets[row + 1]]


class Shard:
    """The pairs of a shard, mapped. None of its memory is that of the process.

    A shard in an object store is not mapped: a column is read when it is asked for.
    """

    def __init__(self, path: Path) -> None:
        """Raise CorpusError if the file is no shard."""
        try:
            self._file = open_parts(path) if is_url(path) else None
            reader = pa.ipc.open_file(self._file or pa.memory_map(str(path)))
            self._batch = None if self._file else reader.get_batch(0)
        except (OSError, pa.ArrowInvalid) as error:
            raise CorpusError(f"{url_of(path)}: no shard of a prepared corpus: {error}") from None
        self._schema = reader.schema

    def __len__(self) -> int:
        """Return the number of pairs."""
        return self._stored_rows if self._batch is None else int(self._batch.num_rows)

    @cached_property
    def _stored_rows(self) -> int:
        return len(self._column(self._schema.names[0]))

    def _column(self, name: str) -> pa.Array:
        """Return a column; from a store it is read each time."""
        if self._batch is not None:
            return self._batch.column(name)
        options = pa.ipc.IpcReadOptions(included_fields=[self._schema.get_field_index(name)])
        return pa.ipc.open_file(self._file, options=options).get_batch(0).column(0)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """What the shard was written with, see `shard_bytes`."""
        found: dict[str, Any] = json.loads(self._schema.metadata[b"lingon"])
        return found

    @cached_property
    def source(self) -> IdColumn:
        """Token ids of the sources, of the best segmentation and without special tokens."""
        return self._lists("source")

    @cached_property
    def target(self) -> IdColumn:
        """Token ids of the targets, likewise."""
        return self._lists("target")

    @cached_property
    def links(self) -> IdColumn | None:
        """Links between words, two numbers each, or None if none were read."""
        return self._lists("links") if self.has("links") else None

    @cached_property
    def source_text(self) -> TextColumn:
        """The normalised sources."""
        return self._texts("source_text")

    @cached_property
    def target_text(self) -> TextColumn:
        """The normalised targets."""
        return self._texts("target_text")

    def list_lengths(self, name: str) -> NDArray[np.int32]:
        """Return the lengths of a column of lists."""
        return np.diff(self._lists(name).offsets)

    def _lists(self, name: str) -> IdColumn:
        column = self._column(name)
        return IdColumn(column.offsets.to_numpy(), column.values.to_numpy())

    def _texts(self, name: str) -> TextColumn:
        column = self._column(name)
        _, offsets, content = column.buffers()
        return TextColumn(np.frombuffer(offsets, np.int64, len(column) + 1), memoryview(content or b""))

    def numbers(self, name: str) -> NDArray[Any]:
        """Return a column of numbers."""
        found: NDArray[Any] = self._column(name).to_numpy()
        return found

    def has(self, name: str) -> bool:
        """Return whether the shard has a column."""
        return bool(self._schema.get_field_index(name) >= 0)


def text_column(texts: Sequence[str]) -> pa.Array:
    """Return texts as a column of a shard."""
    return pa.array(texts, pa.large_string())


def list_column(offsets: NDArray[Any], values: NDArray[Any]) -> pa.Array:
    """Return lists as a column of a shard; offsets: (pairs + 1), where each begins in values."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))


def shard_bytes(columns: Mapping[str, pa.Array], metadata: Mapping[str, Any]) -> memoryview:
    """Return the file of a shard. Equal columns give equal bytes."""
    fields = [pa.field(name, column.type, nullable=False) for name, column in columns.items()]
    schema = pa.schema(fields, {b"lingon": json.dumps(metadata, ensure_ascii=False).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(list(columns.values()), schema=schema))
    return memoryview(sink.getvalue())


class PreparedCorpus:
    """The pairs of a prepared corpus. A pair has a row: its number, over all corpora in the order of the config.

    It is picklable: a process that makes batches maps the shards itself.
    """

    def __init__(self, folder: Path) -> None:
        """Raise CorpusError if the folder has no complete corpus."""
        self.folder = folder
        self.manifest = read_manifest(folder)
        self._shards: dict[int, Shard] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return PreparedCorpus, (self.folder,)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return int(self._first[-1])

    @cached_property
    def lengths(self) -> NDArray[Any]:
        """Source and target lengths (pairs, 2), with the end token and the tokens of the languages, mapped."""
        found: NDArray[Any] = read_array(self.folder / LENGTHS)
        return found

    @cached_property
    def corpus_starts(self) -> NDArray[np.int64]:
        """The first row of each corpus, (corpora + 1)."""
        return np.cumsum([0, *(corpus.kept for corpus in self.manifest.corpora)])

    @cached_property
    def _first(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(shard.pairs for shard in self.manifest.shards)])

    def corpora_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the corpus of each row."""
        return np.searchsorted(self.corpus_starts, rows, side="right") - 1

    def locate(self, rows: NDArray[np.int64]) -> Iterator[tuple[Shard, int]]:
        """Yield the shard of each row, and the row in it."""
        shards = np.searchsorted(self._first, rows, side="right") - 1
        inside = rows - self._first[shards]
        for number, row in zip(shards.tolist(), inside.tolist(), strict=True):
            shard = self._shards.get(number)
            if shard is None:
                shard = self._shards[number] = Shard(self.folder / self.manifest.shards[number].name)
            yield shard, row

    def ids(self, rows: NDArray[np.int64]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Return the token ids of sources and of targets, of the best segmentation and without special tokens."""
        sources, targets = [], []
        for shard, row in self.locate(rows):
            sources.append(shard.source[row])
            targets.append(shard.target[row])
        return sources, targets

    def texts(self, rows: NDArray[np.int64]) -> tuple[list[str], list[str]]:
        """Return the normalised texts of sources and of targets."""
        sources, targets = [], []
        for shard, row in self.locate(rows):
            sources.append(shard.source_text[row])
            targets.append(shard.target_text[row])
        return sources, targets

    def links(self, rows: NDArray[np.int64]) -> list[list[WordLink]]:
        """Return the links between the words of pairs."""
        found = []
        for shard, row in self.locate(rows):
            flat = () if shard.links is None else shard.links[row].reshape(-1, 2).tolist()
            found.append([(source, target) for source, target in flat])
        return found

    def pairs(self, rows: NDArray[np.int64], own: LanguagePair) -> list[Pair]:
        """Return pairs in memory; own: the pair of languages of the block data."""
        found = [each.languages if each.languages != own else None for each in self.manifest.corpora]
        texts = zip(*self.texts(rows), self.corpora_of(rows).tolist(), strict=True)
        return [Pair(source, target, found[corpus]) for source, target, corpus in texts]

    @property
    def counts(self) -> FilterCounts:
        """How many pairs of all corpora were read, and how many each filter dropped."""
        total = FilterCounts(0, {})
        for corpus in self.manifest.corpora:
            total = total + corpus.counts
        return total

    def digest(self, repeats: Sequence[int]) -> str:
        """Return the SHA-256, in hexadecimal, of the pairs and of how often an epoch repeats each corpus."""
        digests = [shard.digest for shard in self.manifest.shards if shard.pairs]
        return hashlib.sha256(json.dumps([digests, list(repeats)]).encode()).hexdigest()

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of its ids, as its files are."""
        return read_tokenizer(self.folder)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a complete corpus. Raises CorpusError."""
    path = folder / MANIFEST
    try:
        values = read_json(path)
        if values.get("version") != VERSION:
            raise CorpusError(f"{path}: must have version {VERSION}, got {values.get('version')}; prepare it again")
        return Manifest.model_validate(values)
    except OSError as error:
        raise CorpusError(f"{folder}: no prepared corpus: {path.name}: {error.strerror}") from None
    except (ValueError, AttributeError, ValidationError):
        raise CorpusError(f"{path}: is damaged; remove {folder} and prepare the corpus again") from None
