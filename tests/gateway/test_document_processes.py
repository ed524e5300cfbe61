"""Processes of documents: a file that costs too much ends its process, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from lingon.documents.document import MOST_REPLY_BYTES
from lingon.errors import LingonError
from lingon.gateway.documents import DocumentLimits, DocumentProcesses, File, Slots
from lingon.gateway.problem import Problem
from tests.support.documents import docx, files_of, paragraph, run
from tests.support.gateway import gateway
from tests.support.timing import eventually

SMALL = File("a.txt", b"It is raining.\n", "de", "a")
LARGE = File("a.md", b"It is *raining* in the `town`.\n\n" * 24_000, "de", "a")  # takes seconds


@asynccontextmanager
async def processes(**limits: int) -> AsyncIterator[DocumentProcesses]:
    found = DocumentProcesses(DocumentLimits(**limits))
    try:
        yield found
    finally:
        await found.close()


def children() -> set[int]:
    """The processes of documents that this one has started."""
    tasks = Path("/proc/self/task").iterdir()
    found = {int(each) for task in tasks for each in _text(task / "children").split()}
    return {each for each in found if "lingon.documents.process" in _text(Path(f"/proc/{each}/cmdline"))}


def _text(path: Path) -> str:
    """The text of a file of a thread or a process, empty if that has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


async def test_a_file_is_read_and_written_as_in_this_process():
    file = File("letter", docx(paragraph(run("It is "), run("raining", "<w:b/>"), run("."))), "de", "a")
    async with processes() as found:
        read = await found.read(file)
        assert (read.file.name, list(read.texts), read.characters) == (
            "document.docx",
            ['It is <f i="1">raining</f>.'],
            len("It is raining."),
        )
        written = await found.write(read.file, read.texts)
    assert files_of(written.content) == files_of(file.content)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"memory": 16 << 20}, "the file takes more than 16 MiB of memory"),
        ({"computing": 0}, "the file takes more than 0 s of computing time"),
    ],
)
async def test_a_file_that_passes_a_limit_is_refused_and_the_next_one_read(limit: dict[str, int], message: str):
    async with processes(**limit) as found:
        with pytest.raises(Problem) as refused:
            await found.read(LARGE)
        assert (str(refused.value), refused.value.http_status) == (message, 400)
        assert list((await found.read(SMALL)).texts) == ["It is raining.\n"]


async def test_a_process_that_crashes_is_replaced(caplog: pytest.LogCaptureFixture):
    async with processes(processes=1) as found:
        await found.read(SMALL)
        (worker,) = children()
        os.kill(worker, signal.SIGSTOP)  # so that it is not done before it is killed
        reading = asyncio.create_task(found.read(LARGE))
        await asyncio.sleep(0.1)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(LingonError, match="the process of a document ended with -9"):
            await reading
        assert (await found.read(SMALL)).characters == len(SMALL.content)
        (worker,) = children()
        os.kill(worker, signal.SIGKILL)  # while it has nothing to do
        await eventually(lambda: found._idle[0].returncode is not None)  # the event loop hears of it after the system
        assert (await found.read(SMALL)).characters == len(SMALL.content)
    assert children() == set()


async def test_a_task_that_is_cancelled_ends_its_process_and_frees_its_slot():
    async with processes(processes=1) as found:
        await found.read(SMALL)
        (worker,) = children()
        os.kill(worker, signal.SIGSTOP)  # so that it is not done before its task is cancelled
        reading = asyncio.create_task(found.read(LARGE))
        await eventually(lambda: not found._idle)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert children() == set()
        assert (await found.read(SMALL)).characters == len(SMALL.content)


def limits_of(process: int) -> str:
    return Path(f"/proc/{process}/limits").read_text()


async def test_processes_have_a_low_priority_and_cannot_write_files():
    async with processes() as found:
        await found.read(SMALL)
        (worker,) = children()
        assert os.getpriority(os.PRIO_PROCESS, worker) > os.getpriority(os.PRIO_PROCESS, 0)
        assert "Max file size             0                    0" in limits_of(worker)


async def test_callers_get_slots_round_robin_and_one_that_left_gets_none():
    slots, order = Slots(1, 10), list[str]()

    async def work(name: str) -> None:
        async with slots.slot(name[0]):
            order.append(name)
            await asyncio.sleep(0)

    async with AsyncExitStack() as first:
        await first.enter_async_context(slots.slot("x"))
        waiting = [asyncio.create_task(work(name)) for name in ("a1", "a2", "a3", "b1", "c1", "b2")]
        await asyncio.sleep(0)
        waiting[1].cancel()
        waiting[4].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == ["a1", "b1", "a3", "b2"]
    async with slots.slot("x"):
        pass


async def test_a_caller_leaves_one_slot_to_others():
    slots = Slots(3, 10)
    async with slots.slot("a"), slots.slot("a"):
        waiting = asyncio.create_task(slots.slot("a").__aenter__())
        await asyncio.sleep(0)
        async with slots.slot("b"):
            assert not waiting.done()
        await asyncio.sleep(0)
        assert not waiting.done()
    async with asyncio.timeout(5):
        await waiting


async def test_a_slot_is_passed_on_by_a_task_that_is_cancelled_as_it_gets_it():
    slots = Slots(1, 10)
    async with AsyncExitStack() as first:
        await first.enter_async_context(slots.slot("x"))
        waiting = asyncio.create_task(slots.slot("a").__aenter__())
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(5), slots.slot("b"):
        pass


async def test_more_files_than_may_wait_are_refused():
    slots = Slots(1, 1)
    async with slots.slot("a"):
        waiting = asyncio.create_task(slots.slot("a").__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="1 documents wait to be read or written; try again") as refused:
            await slots.slot("b").__aenter__()
        waiting.cancel()
    assert (refused.value.http_status, refused.value.retry_after) == (503, 1.0)


async def test_one_caller_leaves_half_of_those_that_may_wait_to_others():
    slots, most = Slots(1, 6), 6
    async with asyncio.timeout(5), slots.slot("a"), AsyncExitStack() as waiting:

        def wait(owner: str) -> None:
            task = asyncio.create_task(slots.slot(owner).__aenter__())
            waiting.callback(task.cancel)

        patient = asyncio.create_task(slots.slot("a", patient=True).__aenter__())
        waiting.callback(patient.cancel)

        for _ in range(most // 2):
            wait("a")
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="3 documents of this caller wait to be read or written; try again"):
            await slots.slot("a").__aenter__()
        for owner in "bcd":
            wait(owner)
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="6 documents wait"):
            await slots.slot("e").__aenter__()


async def test_a_file_that_is_translated_waits_to_be_written_however_many_wait():
    async with processes(processes=1, waiting=1) as found:
        read = await found.read(SMALL)
        file = File("a.md", LARGE.content[:60_000], "de", "a")
        others = [asyncio.create_task(found.read(file)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="wait to be read or written"):
            await found.read(SMALL)
        assert (await found.write(read.file, read.texts)).content == SMALL.content
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def test_a_process_that_cannot_be_started_is_an_error_of_one_line_and_frees_its_slot(
    monkeypatch: pytest.MonkeyPatch,
):
    async with processes(processes=1) as found:
        with monkeypatch.context() as missing:
            missing.setattr(sys, "executable", "/no/python")
            with pytest.raises(LingonError, match="no process for documents could be started: No such file"):
                await found.read(SMALL)
        assert list((await found.read(SMALL)).texts) == ["It is raining.\n"]


async def test_what_files_leave_in_memory_is_not_missing_to_the_next_one():
    async with processes(processes=1, memory=32 << 20) as found:
        started = set[int]()
        for _ in range(2):
            await found.read(File("a.md", LARGE.content[:96_000], "de", "a"))
            started |= children()
            await found.read(SMALL)
            started |= children()
        assert len(started) > 1


async def test_texts_and_files_of_more_bytes_than_a_process_may_return_are_refused():
    file = File("a.txt", b"a\n" * 1000, "de", "a")
    async with processes(memory=1 << 30) as found:
        read = await found.read(file)
        translations = ["é" * ((MOST_REPLY_BYTES >> 1) + 1), *([""] * (len(read.texts) - 1))]
        with pytest.raises(Problem, match=r"the translated file has [\d,]+ bytes; at most 33,554,432") as refused:
            await found.write(file, translations)
        assert refused.value.http_status == 400
    async with processes(memory=1 << 30) as found:
        with pytest.raises(Problem, match=r"the texts of the file have [\d,]+ bytes; at most 33,554,432"):
            await found.read(File("a.txt", b"a" * (MOST_REPLY_BYTES + 1), "de", "a"))
        assert list((await found.read(SMALL)).texts) == ["It is raining.\n"]


async def test_a_server_that_stops_does_not_wait_for_documents(tmp_path: Path):
    async with gateway(http_data_dir=tmp_path, drain_seconds=0.1) as http:
        sent = [http.upload("/translate_file", "a.md", LARGE.content, source="en", target="de") for _ in range(3)]
        uploads = [asyncio.create_task(each) for each in sent]
        await eventually(lambda: len(children()) == 1)
        started = children()
    for upload in uploads:
        upload.cancel()
    await asyncio.gather(*uploads, return_exceptions=True)
    await eventually(lambda: started & children() == set())  # the system ends a process some time after the signal
