"""The translation of shards. A shard becomes one file, which appears whole, and then a record that says that it is
done.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from lingon.bulk.format import PieceReader, PieceRows, packed
from lingon.bulk.planning import STATE, Plan, Shard, stored_plan
from lingon.bulk.storage import Folder, digest, file_digest, opened
from lingon.bulk.translating import Translate
from lingon.errors import LingonError

RECORDS = f"{STATE}/shards"
MANIFEST, SUCCESS = f"{STATE}/manifest.json", "_SUCCESS"
NAMED_ROWS = 100  # rows with an error that a record names
READERS = 16  # records that are read at once
MOST_RECORD_BYTES = 2**24
SEAL = "record_sha256"  # name of the digest of the other fields in a record


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a shard, written when its file is complete.

    plan: the digest of the plan; part: name of the file; size: its bytes; sha256: of its bytes
    problems: the first rows with an error, by their number in the file of the input, from 0
    rows_without_terms: rows whose translation lacks a term
    seconds: of its translation
    """

    plan: str
    shard: int
    part: str
    rows: int
    errors: int
    source_tokens: int
    target_tokens: int
    size: int
    sha256: str
    rows_without_terms: int
    seconds: float = field(compare=False)
    problems: dict[str, str] = field(default_factory=dict)

    def written(self) -> bytes:
        """Return the record as JSON, with a digest of the other fields."""
        content = asdict(self)
        seal = digest(json.dumps(content).encode())
        return (json.dumps({**content, SEAL: seal}, indent=1) + "\n").encode()

    def is_of(self, plan: Plan, shard: Shard) -> bool:
        """Return whether the record is one of this shard of this plan."""
        named = (plan.digest, shard.number, plan.part(shard), shard.piece.rows)
        counts = (self.errors, self.source_tokens, self.target_tokens, self.size, self.rows_without_terms)
        return (
            (self.plan, self.shard, self.part, self.rows) == named
            and all(type(each) is int for each in counts)
            and type(self.seconds) is float
            and math.isfinite(self.seconds)
        )


def missing(plan: Plan) -> list[Shard]:
    """Return the shards that are not done: they lack a record of this plan, or a file of the bytes that it states.

    If there are any, _SUCCESS is removed. Raises LingonError for a file of another run.
    """
    done = _done(plan)
    if len(done) < len(plan.shards) and SUCCESS in plan.folder.sizes(""):
        plan.folder.remove(SUCCESS)
    return [shard for shard in plan.shards if shard.number not in done]


def run_shard(
    plan: Plan, shard: Shard, translate: Translate, on_rows: Callable[[int], object] = lambda rows: None
) -> Record:
    """Translate a shard and write its file and its record.

    translate: with the model of the plan; on_rows: called with the number of rows that are done since the last call
    Raise LingonError if the plan says so for a row that cannot be translated, and then write nothing.
    """
    with Readers(plan) as readers:
        return translate_shard(plan, shard, readers.rows(shard), translate, on_rows)


def translate_shard(
    plan: Plan,
    shard: Shard,
    rows: PieceRows,
    translate: Translate,
    on_rows: Callable[[int], object] = lambda rows: None,
) -> Record:
    """Translate a shard as `run_shard` does, from its rows."""
    translate.require(plan.model)
    begin, columns, file = time.monotonic(), translate.columns, plan.files[shard.file]
    languages = rows.values(columns.language) if columns.language else None
    cells, counts = translate.cells(rows.values(columns.text), languages, on_rows)
    problems = {number: cell.error for number, cell in enumerate(cells, start=shard.piece.first) if cell.error}
    if problems and plan.task["fail_on_errors"]:
        number, reason = next(iter(problems.items()))
        raise LingonError(f"{file.url}: row {number:,}: {reason}")
    part, marks = plan.part(shard), {"plan": plan.digest, "shard": str(shard.number)}
    content = packed(part, rows.written(translate.added(cells), marks))
    folder = plan.folder
    folder.write(part, content)
    record = Record(
        plan=plan.digest,
        shard=shard.number,
        part=part,
        rows=len(cells),
        errors=len(problems),
        source_tokens=counts.source_tokens,
        target_tokens=counts.target_tokens,
        size=len(content),
        sha256=digest(content),
        rows_without_terms=counts.rows_without_terms,
        seconds=round(time.monotonic() - begin, 3),
        problems={str(number): problems[number] for number in list(problems)[:NAMED_ROWS]},
    )
    folder.write(f"{RECORDS}/{_record_name(shard)}", record.written())
    return record


def finish(plan: Plan) -> dict[str, Any]:
    """Read all files again, and write the manifest and _SUCCESS, and return the manifest.

    Raise LingonError if a shard is missing, or its file has not the bytes that were written.
    """
    folder = plan.folder
    done = _done(plan)
    if len(done) < len(plan.shards):
        left = f"{len(plan.shards) - len(done):,} of {len(plan.shards):,} shards are missing"
        raise LingonError(f"{plan.output}: {left} or have other bytes; the same command makes them again")
    records = done.values()
    manifest = {
        "plan": plan.digest,
        "model": plan.model,
        "shards": len(records),
        "rows": sum(each.rows for each in records),
        "errors": sum(each.errors for each in records),
        "rows_without_terms": sum(each.rows_without_terms for each in records),
        "source_tokens": sum(each.source_tokens for each in records),
        "target_tokens": sum(each.target_tokens for each in records),
        "hours": round(sum(each.seconds for each in records) / 3600, 4),
        "parts": {each.part: {"rows": each.rows, "errors": each.errors, "sha256": each.sha256} for each in records},
    }
    folder.write(MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    folder.write(SUCCESS, b"")
    return manifest


def _done(plan: Plan) -> dict[int, Record]:
    """Return the records of the shards that are done, by the number of the shard, in its order.

    A record that is not one of this plan counts as none, and so does one whose file has other bytes than it states.
    Raise LingonError for a file that looks as one of the output and is none of this plan: readers would take its rows.
    """
    folder = plan.folder
    parts, records = folder.sizes(""), folder.sizes(RECORDS)
    names = {plan.part(shard) for shard in plan.shards}
    foreign = [name for name in sorted(parts) if name.startswith("part-") and name not in names]
    if foreign:
        raise LingonError(f"{folder.url}/{foreign[0]}: is no file of this run; remove it or choose another folder")

    def read(shard: Shard) -> Record | None:
        record = _read_record(folder, _record_name(shard))
        if record is None or not record.is_of(plan, shard) or parts.get(record.part) != record.size:
            return None
        return record if file_digest(f"{folder.url}/{record.part}") == record.sha256 else None

    written = [shard for shard in plan.shards if _record_name(shard) in records]
    with ThreadPoolExecutor(READERS) as pool:
        return {each.shard: each for each in pool.map(read, written) if each is not None}


def _record_name(shard: Shard) -> str:
    return f"{shard.number:06d}.json"


def _read_record(folder: Folder, name: str) -> Record | None:
    """Return a record as it was written, or None if it was changed since."""
    try:
        content = folder.read(f"{RECORDS}/{name}", MOST_RECORD_BYTES)
        found = json.loads(content)
        del found[SEAL]
        record = Record(**found)
        return record if record.written() == content else None
    except (ValueError, TypeError, LookupError, RecursionError, FileNotFoundError, LingonError):
        return None


class Readers:
    """A reader of the rows of shards. A file stays open from one shard to the next, so that a packed one is read
    once.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan, self._open = plan, ExitStack()
        self._file: int | None = None
        self._reader: PieceReader

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *rest: object) -> None:
        self._open.close()

    def rows(self, shard: Shard) -> PieceRows:
        """Return the rows of a shard."""
        if self._file != shard.file or shard.piece.first < self._reader.position:
            self._open.close()
            url = self._plan.files[shard.file].url
            self._reader = self._plan.format_of(shard.file).reader(url, self._open.enter_context(opened(url)))
            self._file = shard.file
        return self._reader.rows(shard.piece)


class ShardWorker:
    """A worker in a process of its own, which keeps files and model open."""

    def __init__(self, plan: Plan, translate: Translate) -> None:
        """Raise LingonError if the folder of the output has not this plan, and so is another folder here."""
        if stored_plan(plan.folder) != plan.written():
            raise LingonError(
                f"{plan.output}: this worker does not find the plan there; the folder must be shared by all machines"
            )
        self._plan, self._readers, self.translate = plan, Readers(plan), translate

    def run(self, shard: Shard, on_rows: Callable[[int], object] = lambda rows: None) -> Record:
        """Run a shard as `run_shard` does."""
        return translate_shard(self._plan, shard, self._readers.rows(shard), self.translate, on_rows)


def read_ahead(plan: Plan, shards: Sequence[Shard]) -> Iterator[tuple[Shard, PieceRows]]:
    """Yield the shards with their rows. Those of the next one are read while one is translated."""
    with Readers(plan) as readers, ThreadPoolExecutor(1) as pool:
        coming = pool.submit(readers.rows, shards[0]) if shards else None
        for position, shard in enumerate(shards):
            assert coming is not None
            rows = coming.result()
            if position + 1 < len(shards):
                coming = pool.submit(readers.rows, shards[position + 1])
            yield shard, rows
