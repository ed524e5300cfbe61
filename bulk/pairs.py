"""The pairs that a run has translated, for a translation memory: read from its output when it is complete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from hashlib import blake2b

from lingon.bulk.planning import Plan
from lingon.bulk.storage import opened
from lingon.bulk.translating import Columns
from lingon.cli.memory import LocalMemory, plain_text
from lingon.memories.segment import MOST_TEXT, Segment
from lingon.text import normalise


def new_pairs(plan: Plan, columns: Columns, memory: LocalMemory | None) -> Iterator[Segment]:
    """Yield each different text that was translated, and its translation, but for texts of a memory.

    Raises CorpusError or LingonError for a file of the output that cannot be read.
    """
    seen, changed = set[bytes](), time.time_ns() // 1_000_000
    for text, translation in _rows(plan, columns):
        plain = plain_text(text, plan.task["options"]), plain_text(translation, plan.task["options"])
        source, target = ((each or "").strip() for each in plain)
        key = blake2b(source.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key in seen or not normalise(source) or not normalise(target):
            continue
        seen.add(key)
        if max(len(source), len(target)) <= MOST_TEXT and (memory is None or memory.exact(source) is None):
            yield Segment(source, target, origin=f"MT! {plan.model}", changed=changed)


def _rows(plan: Plan, columns: Columns) -> Iterator[tuple[str, str]]:
    """Yield the texts and translations of the rows without an error."""
    for shard in plan.shards:
        url, kind = f"{plan.folder.url}/{plan.part(shard)}", plan.format_of(shard.file)
        with opened(url) as content:
            pieces = list(kind.cut(url, content, plan.task["shard_rows"]))
        with opened(url) as content:
            reader = kind.reader(url, content)
            for piece in pieces:
                rows = reader.rows(piece)
                names = (columns.text, columns.into, columns.errors)
                for text, translation, error in zip(*(rows.values(name) for name in names), strict=True):
                    if isinstance(text, str) and isinstance(translation, str) and not error:
                        yield text, translation
