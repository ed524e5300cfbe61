"""What the tests of glossaries and memories on disk share, and changes of them that are killed at every system call.

    python -m tests.support.stores glossary|sets|memory FOLDER SEED

prints a line for each change: how it ended, and what another process then finds.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from google.protobuf.field_mask_pb2 import FieldMask

from lingon.errors import NotStored
from lingon.glossary_calls import glossary_requests
from lingon.google.glossaries import GoogleGlossaries
from lingon.google.term_sets import Pair
from lingon.google.v3 import cloud_translation_pb2 as google
from lingon.serving.stores.data_dir import DataDir, StoreLimits
from lingon.serving.stores.glossaries import GlossaryStore
from lingon.serving.stores.memories import MemoryStore
from lingon.translation.v1 import stores_pb2 as pb
from lingon.translation.v1.translation_pb2 import Segment, Term
from tests.support.repository import ROOT

ITEMS = 30  # terms or segments of a change
EARLY, LAST = 10, 60  # kills of a change with many system calls: at drawn ones, and at each of the last ones


async def put_glossary(
    store: GlossaryStore, *terms: tuple[str, str], name: str = "legal", pair: str = "en-de", caller: str = ""
) -> pb.Glossary:
    source, target = pair.split("-", maxsplit=1)
    header = pb.PutGlossaryHeader(name=name, source_language_code=source, target_language_code=target)
    message = pb.PutGlossaryRequest(terms=[Term(source=one, target=other) for one, other in terms])
    return await store.put(caller, header, _at_once(message))


async def put_memory(
    store: MemoryStore,
    *segments: tuple[str, str],
    name: str = "site",
    pair: tuple[str, str] = ("en", "de"),
    caller: str = "",
    replace: bool = False,
) -> pb.Memory:
    header = pb.PutMemoryHeader(name=name, source_language_code=pair[0], target_language_code=pair[1], replace=replace)
    message = pb.PutMemoryRequest(segments=[Segment(source=one, target=other) for one, other in segments])
    return await store.put(caller, header, _at_once(message))


async def _at_once(*messages: Any) -> AsyncIterator[Any]:
    for message in messages:
        yield message


class Kind(NamedTuple):
    """change: stores items that all have the number; found: the numbers of the items that are there, one for each."""

    change: Callable[[DataDir, int], Awaitable[Any]]
    found: Callable[[DataDir], Awaitable[list[int]]]


def _items(number: int) -> list[tuple[str, str]]:
    return [(f"Text {index}", str(number)) for index in range(ITEMS)]


async def _change_glossary(data_dir: DataDir, number: int) -> None:
    await put_glossary(GlossaryStore(data_dir), *_items(number))


async def _terms(data_dir: DataDir) -> list[int]:
    parts = GlossaryStore(data_dir).read("", "legal", "en", "de")
    return [int(term.target) async for part in parts for term in part.terms]


class OwnGlossaries:
    """The glossaries of everyone in a store, with the methods of GlossaryCalls."""

    def __init__(self, store: GlossaryStore) -> None:
        self._store = store

    async def put_glossary(self, header: pb.PutGlossaryHeader, terms: Mapping[Pair, Sequence[Term]]) -> pb.Glossary:
        first, *others = glossary_requests(header, terms)
        return await self._store.put("", first.header, _at_once(first, *others))

    async def glossary(self, name: str) -> pb.Glossary:
        return await self._store.get("", name)

    async def glossaries(self) -> list[pb.Glossary]:
        return await self._store.all("")

    async def terms(self, name: str, source: str, target: str) -> list[Term]:
        return [term async for part in self._store.read("", name, source, target) for term in part.terms]

    async def delete_glossary(self, name: str, source: str = "", target: str = "") -> None:
        await self._store.delete("", name, source, target)


async def _change_sets(data_dir: DataDir, number: int) -> None:
    """Store sets of equivalent terms in three languages, in a new glossary or in place of those of one."""
    kept = OwnGlossaries(GlossaryStore(data_dir))
    rows = ["en,de,fr", *(f"{text},{text} de {target},{text} fr {target}" for text, target in _items(number))]
    glossary = google.Glossary(name="projects/p/locations/l/glossaries/legal")
    glossary.language_codes_set.language_codes.extend(["en", "de", "fr"])
    glossary.input_config.gcs_source.input_uri = "data:text/csv," + quote("\n".join(rows))
    if await kept.glossaries():
        request = google.UpdateGlossaryRequest(glossary=glossary, update_mask=FieldMask(paths=["input_config"]))
        await GoogleGlossaries(kept).update(request)
    else:
        await GoogleGlossaries(kept).create(google.CreateGlossaryRequest(glossary=glossary))


async def _sets(data_dir: DataDir) -> list[int]:
    """Return the number in each term of each pair of languages. Those of a pair that is missing are missing."""
    kept, found = OwnGlossaries(GlossaryStore(data_dir)), list[int]()
    for each in (await kept.glossary("legal")).dictionaries:
        pair = each.source_language_code, each.target_language_code
        for term in await kept.terms("legal", *pair):
            translated = term.target if pair[0] == "en" else term.source
            found.append(int(translated.split()[-1]))
    return found


async def _change_memory(data_dir: DataDir, number: int) -> None:
    await put_memory(MemoryStore(data_dir), *_items(number))


async def _segments(data_dir: DataDir) -> list[int]:
    return [int(each.target) async for part in MemoryStore(data_dir).read("", "site") for each in part.segments]


KINDS = {
    "glossary": Kind(_change_glossary, _terms),
    "sets": Kind(_change_sets, _sets),
    "memory": Kind(_change_memory, _segments),
}


class SystemCalls:
    """The calls of the operating system by threads that start after `watch`. The process is killed before one.

    killed_at: its number, from 1 on; 0 for none
    """

    def __init__(self, killed_at: int) -> None:
        self.count, self._killed_at = 0, killed_at

    def watch(self) -> None:
        threading.setprofile(self._called)

    def _called(self, frame: Any, event: str, argument: Any) -> None:
        if event == "c_call" and (argument.__module__ == "posix" or isinstance(argument.__self__, io.IOBase)):
            self.count += 1
            if self.count == self._killed_at:
                os.kill(os.getpid(), signal.SIGKILL)


def _in_child(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Run work in a child of this process. Returns whether it was killed, and the result of the work."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status), json.loads(said) if said else None


def _changed(kind: Kind, folder: Path, number: int, killed_at: int) -> int:
    """Make a change, and return the number of system calls for it."""

    async def change() -> int:
        data_dir, calls = DataDir(folder, StoreLimits()), SystemCalls(killed_at)
        calls.watch()
        await kind.change(data_dir, number)
        return calls.count

    return asyncio.run(change())


def _found(kind: Kind, folder: Path) -> list[int]:
    async def find() -> list[int]:
        try:
            return await kind.found(DataDir(folder, StoreLimits()))
        except NotStored:
            return []

    return asyncio.run(find())


def main(name: str, folder: Path, seed: int) -> None:
    """Change, kill and look, and write a JSON object for each change to standard output."""
    kind, number = KINDS[name], 2
    _in_child(lambda: _changed(kind, folder, 1, 0))
    _, calls = _in_child(lambda: _changed(kind, folder, 2, 0))  # in place of an earlier one
    points = range(1, calls + 1)
    if calls > EARLY + LAST:
        points = [*sorted(random.Random(seed).sample(points[:-LAST], EARLY)), *points[-LAST:]]
    for point in points:
        killed, _ = _in_child(partial(_changed, kind, folder, number + 1, point))
        _, found = _in_child(partial(_found, kind, folder))
        files = sorted(path.name for path in folder.glob("*/*/*"))
        sys.stdout.write(json.dumps({"before": number, "killed": killed, "found": found, "files": files}) + "\n")
        number = max(found or [number])


def outcomes_of_kills(name: str, folder: Path, seed: int) -> list[dict[str, Any]]:
    """Return what `main` prints, of a process of its own, since processes with threads do not fork safely."""
    command = [sys.executable, "-m", "tests.support.stores", name, folder, str(seed)]
    ran = subprocess.run(command, capture_output=True, cwd=ROOT, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
