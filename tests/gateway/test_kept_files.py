"""Files that are kept: room for each caller, order of the work on the disk, and their end."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lingon.gateway import documents as documents_module
from lingon.gateway.backend import Caller
from lingon.gateway.documents import KEEP_SECONDS, LEAST_BYTES, MOST_BYTES, KeptFiles
from lingon.gateway.problem import Problem
from tests.support.timing import eventually

CALLER = Caller(None, "192.0.2.1", "")


def names_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


async def test_files_beyond_the_room_are_refused_and_those_of_one_caller_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents_module, "MOST_BYTES", 8 * LEAST_BYTES)
    files, caller = KeptFiles(tmp_path / "d"), CALLER
    first = [await files.begin("deepl", caller, 1) for _ in range(2)]
    with pytest.raises(Problem, match="there is no room for more files") as refused:
        await files.begin("deepl", caller, 1)
    assert (refused.value.http_status, refused.value.retry_after) == (503, 60)
    await files.remove(first[0])
    await files.begin("deepl", caller, 1)
    for key in "bcd":
        for _ in range(2):
            await files.begin("deepl", replace(caller, key=key), 1)
    with pytest.raises(Problem, match="no room"):
        await files.begin("deepl", replace(caller, key="e"), 1)
    with pytest.raises(Problem, match="no room"):
        await files.finish(first[1], ".txt", bytes(LEAST_BYTES + 1), 1)
    await files.finish(first[1], ".txt", bytes(LEAST_BYTES), 1)


async def test_a_full_disk_is_no_room_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = KeptFiles(tmp_path)
    kept = await files.begin("deepl", CALLER, 1)
    monkeypatch.setattr(documents_module, "write_private", fail)
    for refused in (files.begin("deepl", CALLER, 1), files.finish(kept, ".txt", b"text", 4)):
        with pytest.raises(Problem, match="there is no room"):
            await refused
    assert names_in(tmp_path) == set()


async def test_a_file_that_nobody_fetches_is_gone_after_an_hour(tmp_path: Path):
    now = [time.time()]
    files = KeptFiles(tmp_path / "d", clock=lambda: now[0])
    kept = await files.begin("deepl", CALLER, 1)
    assert files.find(kept.number, "deepl", CALLER) is kept
    now[0] += KEEP_SECONDS + 1
    with pytest.raises(Problem, match="no such file"):
        files.find(kept.number, "deepl", CALLER)


async def test_an_upload_that_is_cancelled_as_its_file_begins_leaves_nothing(tmp_path: Path):
    files, folder = KeptFiles(tmp_path), tmp_path
    for turns in range(6):
        begun = asyncio.create_task(files.begin("deepl", CALLER, 1 << 20))
        for _ in range(turns):
            await asyncio.sleep(0)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
    await files.remove(await files.begin("deepl", CALLER, MOST_BYTES // 4))  # the whole room of a caller
    assert names_in(folder) == set()


async def test_a_file_is_written_before_it_is_read_and_not_after_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write = documents_module.write_private

    def slow(path: Path, content: bytes) -> None:
        time.sleep(0.05)
        write(path, content)

    files = KeptFiles(tmp_path)
    kept = await files.begin("deepl", CALLER, 1)
    monkeypatch.setattr(documents_module, "write_private", slow)
    finishing = asyncio.create_task(files.finish(kept, ".txt", b"text", 4))
    await asyncio.sleep(0)
    assert kept.status == "done"  # which a client sees, and fetches it
    assert await files.content(kept) == b"text"
    await finishing
    failing = asyncio.create_task(files.fail(kept, "wrong"))
    await asyncio.sleep(0)
    await files.remove(kept)
    await failing
    assert names_in(tmp_path) == set()


async def test_a_file_that_was_removed_is_not_kept_again(tmp_path: Path):
    files = KeptFiles(tmp_path)
    removed = await files.begin("deepl", CALLER, 1)
    await files.remove(removed)
    with pytest.raises(Problem, match="no such file, or it was removed"):
        await files.finish(removed, ".txt", bytes(MOST_BYTES // 4), 1)
    await files.fail(removed, "wrong")
    assert names_in(tmp_path) == set()
    await files.begin("deepl", CALLER, MOST_BYTES // 4)


async def test_a_file_with_an_error_takes_the_room_of_its_record_alone_after_a_restart_too(tmp_path: Path):
    files = KeptFiles(tmp_path)
    await files.fail(await files.begin("deepl", CALLER, MOST_BYTES // 4), "wrong")
    more = MOST_BYTES // 4 - LEAST_BYTES
    await files.begin("deepl", CALLER, more)
    again = KeptFiles(tmp_path)
    await again.begin("deepl", CALLER, more - LEAST_BYTES)
    with pytest.raises(Problem, match="no room"):
        await again.begin("deepl", CALLER, 1)


async def test_files_are_gone_after_an_hour_whatever_becomes_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents_module, "REMOVE_SECONDS", 0.001)
    now = [time.time() + 30 * KEEP_SECONDS]
    files = KeptFiles(tmp_path, clock=lambda: now[0])
    await files.begin("deepl", CALLER, 1)
    now[0] -= 30 * KEEP_SECONDS
    await files.begin("deepl", CALLER, 1)
    now[0] += KEEP_SECONDS + 1
    removing = asyncio.create_task(files.remove_old_ones())
    await eventually(lambda: names_in(tmp_path) == set())
    removing.cancel()
