"""Input for bulk translation, and its output read again."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lingon.bulk.planning import Plan, Shard
from lingon.bulk.runs import LocalEngine, Watch
from lingon.bulk.shards import Record
from lingon.bulk.translating import Translate
from lingon.cli.options.backend import BackendOptions
from lingon.errors import LingonError
from tests.support import shipped_model
from tests.support.repository import ROOT

LINES = (ROOT / "tests/data/tatoeba.en").read_text().splitlines()
MIXED = [*LINES[:40], None, *LINES[:10], " ", *LINES[40:90]]
BACKEND = BackendOptions(model=str(shipped_model.MODEL), engines=1, threads=1)


def translator(**columns: Any) -> Translate:
    """A translator with the shipped model, greedy, into the column de."""
    return Translate(**{"backend": BACKEND, "into": "de", "beam_size": 1, **columns})


def write_parquet(path: Path, texts: Sequence[str | None], **arguments: Any) -> None:
    """A file with an id, the texts, and a column of a type that no text format has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = range(len(texts))
    pq.write_table(pa.table({"id": ids, "text": texts, "tags": [[each] for each in ids]}), path, **arguments)


def write_jsonl(path: Path, texts: Iterable[str]) -> None:
    """A line for each text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))


def parts(folder: Path) -> dict[str, bytes]:
    """The files of an output, without those that say what was done."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def rows(folder: Path) -> list[dict[str, Any]]:
    """All rows of an output, in the order of the names of its files."""
    return [row for name, content in parts(folder).items() for row in _rows(name, content)]


def _rows(name: str, content: bytes) -> list[dict[str, Any]]:
    if name.endswith(".gz"):
        name, content = name.removesuffix(".gz"), gzip.decompress(content)
    if name.endswith(".zst"):
        name, content = name.removesuffix(".zst"), pa.CompressedInputStream(io.BytesIO(content), "zstd").read()
    match name.rsplit(".", 1)[1]:
        case "parquet":
            return pq.read_table(io.BytesIO(content)).to_pylist()  # type: ignore[no-any-return]
        case "jsonl":
            return [json.loads(line) for line in content.splitlines()]
        case "txt":
            return [{"de": line} for line in content.decode().splitlines()]
        case kind:
            text = io.StringIO(content.decode(errors="surrogateescape"), newline="")
            quoting = csv.QUOTE_NONE if kind == "tsv" else csv.QUOTE_MINIMAL
            return list(csv.DictReader(text, delimiter={"csv": ",", "tsv": "\t"}[kind], quoting=quoting))


class Silent:
    """Watches without showing anything."""

    def begin(self, plan: Plan, left: Sequence[Shard]) -> None: ...

    def rows(self, count: int) -> None: ...

    def shard(self, record: Record) -> None: ...


class Ending(LocalEngine):
    """An engine that fails after this many shards."""

    def __init__(self, shards: int) -> None:
        object.__setattr__(self, "shards", shards)

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: Watch) -> Iterator[Record]:
        yield from super().run(plan, left[: self.shards], translate, watch)  # type: ignore[attr-defined]
        raise LingonError("killed")
