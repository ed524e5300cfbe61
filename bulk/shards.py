"""Translates shards. A shard becomes one file, which appears whole, and then a record that says that it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from lingon.bulk.formats import Rows
from lingon.bulk.formats.format import Reader
from lingon.bulk.formats.packing import packed
from lingon.bulk.planning import STATE, Plan, Shard, read_plan
from lingon.bulk.storage import Folder, digest, open_folder, opened
from lingon.bulk.translating import Translate
from lingon.errors import LingonError

RECORDS = f"{STATE}/shards"
MANIFEST, SUCCESS = f"{STATE}/manifest.json", "_SUCCESS"
NAMED_ROWS = 100  # rows with an error that a record names
READERS = 16  # records that are read at once


@dataclass(frozen=True, slots=True)
class Record:
    """What is written about a shard when its file is complete.

    part: name of the file; size: its bytes; sha256: of its bytes
    problems: the first rows with an error, by their number in the file of the input, from 0
    seconds: of its translation
    """

    shard: int
    part: str
    rows: int
    errors: int
    source_tokens: int
    target_tokens: int
    size: int
    sha256: str
    seconds: float = field(compare=False)
    problems: dict[str, str] = field(default_factory=dict)


def missing(plan: Plan) -> list[Shard]:
    """The shards that are not done: those without a record, or without a file of the size that it states."""
    done = _done(plan.folder)
    return [shard for shard in plan.shards if shard.number not in done]


def run_shard(
    plan: Plan, shard: Shard, translate: Translate, on_rows: Callable[[int], object] = lambda rows: None
) -> Record:
    """Translate a shard and write its file and its record.

    translate: with the model of the plan; on_rows: called with the number of rows that are done since the last call
    Raises LingonError if the plan says so for a row that cannot be translated, and then writes nothing.
    """
    with Readers(plan) as readers:
        return translate_shard(plan, shard, readers.rows(shard), translate, on_rows)


def translate_shard(
    plan: Plan, shard: Shard, rows: Rows, translate: Translate, on_rows: Callable[[int], object] = lambda rows: None
) -> Record:
    """As run_shard, with the rows of the shard."""
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
        shard=shard.number,
        part=part,
        rows=len(cells),
        errors=len(problems),
        source_tokens=counts.source_tokens,
        target_tokens=counts.target_tokens,
        size=len(content),
        sha256=digest(content),
        seconds=round(time.monotonic() - begin, 3),
        problems={str(number): problems[number] for number in list(problems)[:NAMED_ROWS]},
    )
    folder.write(f"{RECORDS}/{shard.number:06d}.json", (json.dumps(asdict(record), indent=1) + "\n").encode())
    return record


def finish(plan: Plan) -> dict[str, Any]:
    """Write the manifest and _SUCCESS; raises LingonError if a shard is missing. Returns the manifest."""
    folder = plan.folder
    done = _done(folder)
    if len(done) < len(plan.shards):
        raise LingonError(f"{plan.output}: {len(plan.shards) - len(done):,} of {len(plan.shards):,} shards are missing")
    records = done.values()
    manifest = {
        "plan": plan.digest,
        "model": plan.model,
        "shards": len(records),
        "rows": sum(each.rows for each in records),
        "errors": sum(each.errors for each in records),
        "source_tokens": sum(each.source_tokens for each in records),
        "target_tokens": sum(each.target_tokens for each in records),
        "hours": round(sum(each.seconds for each in records) / 3600, 4),
        "parts": {each.part: {"rows": each.rows, "errors": each.errors, "sha256": each.sha256} for each in records},
    }
    folder.write(MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    folder.write(SUCCESS, b"")
    return manifest


def _done(folder: Folder) -> dict[int, Record]:
    """The records of the shards that are done, by the number of the shard, in its order.

    A record that cannot be read counts as none, and so does one whose file is not there with the size that it states.
    """

    def read(name: str) -> Record | None:
        try:
            return Record(**json.loads(folder.read(f"{RECORDS}/{name}")))
        except (ValueError, TypeError, FileNotFoundError):
            return None

    with ThreadPoolExecutor(READERS) as pool:
        found = [each for each in pool.map(read, sorted(folder.sizes(RECORDS))) if each is not None]
    parts = folder.sizes("")
    return {each.shard: each for each in found if parts.get(each.part) == each.size}


class Readers:
    """Reads the rows of shards. A file stays open from one shard to the next, so that a packed one is read once."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._open = plan, ExitStack()
        self._file: int | None = None
        self._reader: Reader

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *rest: object) -> None:
        self._open.close()

    def rows(self, shard: Shard) -> Rows:
        """The rows of a shard."""
        if self._file != shard.file or shard.piece.first < self._reader.position:
            self._open.close()
            url = self._plan.files[shard.file].url
            self._reader = self._plan.format_of(shard.file).reader(url, self._open.enter_context(opened(url)))
            self._file = shard.file
        return self._reader.rows(shard.piece)


class ShardWorker:
    """Translates shards in a process of its own. It reads the plan from the output, and keeps files and model open."""

    def __init__(self, output: str, translate: Translate) -> None:
        plan = read_plan(open_folder(output))
        if plan is None:
            raise LingonError(f"{output}: this worker finds no plan there; the folder must be shared by all machines")
        self._plan, self._readers, self.translate = plan, Readers(plan), translate

    def run(self, shard: Shard, on_rows: Callable[[int], object] = lambda rows: None) -> Record:
        """As run_shard."""
        return translate_shard(self._plan, shard, self._readers.rows(shard), self.translate, on_rows)


def read_ahead(plan: Plan, shards: Sequence[Shard]) -> Iterator[tuple[Shard, Rows]]:
    """The shards with their rows; those of the next one are read while one is translated."""
    with Readers(plan) as readers, ThreadPoolExecutor(1) as pool:
        coming = pool.submit(readers.rows, shards[0]) if shards else None
        for place, shard in enumerate(shards):
            assert coming is not None
            rows = coming.result()
            if place + 1 < len(shards):
                coming = pool.submit(readers.rows, shards[place + 1])
            yield shard, rows
