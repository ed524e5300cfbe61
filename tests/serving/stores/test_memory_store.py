"""Translation memories on disk: found for translations, shared by processes, and whole after a kill or a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lingon.errors import DiskFull, NotStored
from lingon.serving.stores import memory_file
from lingon.serving.stores.data_dir import DataDir, StoreLimits
from lingon.serving.stores.memories import MemoryStore
from tests.support.full_disk import room
from tests.support.stores import ITEMS, outcomes_of_kills, put_memory


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[], MemoryStore]]:
    """A function that opens the same folder as another server does."""
    opened = []

    def open_one() -> MemoryStore:
        opened.append(DataDir(tmp_path, StoreLimits()))
        return MemoryStore(opened[-1])

    yield open_one
    for each in opened:
        each.close()


async def targets(store: MemoryStore, text: str, *names: str, pair: tuple[str, str] = ("en", "de")) -> list[str]:
    """The targets that the memories have for a text, as MEMORY:TARGET."""
    found = await store.find("", names or ("site",), *pair)
    return [f"{name}:{each.segment.target}" for name, memory in found for each in memory.find(text)]


@pytest.mark.parametrize(
    ("stored", "wanted", "serves"),
    [
        (("en", "de"), ("en", "de"), True),
        (("en-GB", "de"), ("en", "de-AT"), True),
        (("en", "pt-PT"), ("en", "pt"), True),
        (("en", "pt-PT"), ("en", "pt-BR"), False),
        (("en", "zh-Hant"), ("en", "zh-Hans"), False),
        (("en", "fr"), ("en", "de"), False),
        (("de", "en"), ("en", "de"), False),
    ],
)
async def test_a_memory_serves_its_own_languages_alone(open_store, stored, wanted, serves):
    store = open_store()
    await put_memory(store, ("Open it.", "x"), pair=stored)
    assert await targets(store, "Open it.", pair=wanted) == (["site:x"] if serves else [])


async def test_an_owner_finds_its_own_memories_alone_in_the_order_of_their_names(open_store):
    store = open_store()
    await put_memory(store, ("Open it.", "b"), name="b")
    await put_memory(store, ("Open it.", "a"), name="a")
    await put_memory(store, ("Open it.", "one"), caller="key/one")
    assert await targets(store, "Open it.", "b", "a") == ["b:b", "a:a"]
    with pytest.raises(NotStored, match="no memory site"):
        await store.find("", ["site"], "en", "de")


async def test_a_change_or_removal_by_another_server_is_seen_by_the_next_call(open_store):
    store, other = open_store(), open_store()
    await put_memory(store, ("Open it.", "first"))
    for target in map(str, range(4)):
        await put_memory(other, ("Open it.", target))
        assert await targets(store, "Open it.") == [f"site:{target}"]
    await other.delete("", "site")
    with pytest.raises(NotStored):
        await store.find("", ["site"], "en", "de")


async def test_readers_keep_the_version_with_which_they_began(open_store):
    store = open_store()
    await put_memory(store, *((f"Text {number}", "old") for number in range(2500)))
    ((_, memory),) = await store.find("", ["site"], "en", "de")
    reading, found = store.read("", "site"), []
    found += (await anext(reading)).segments
    await put_memory(store, ("Text 7", "new"), replace=True)
    found += [each async for part in reading for each in part.segments]
    assert ({each.target for each in found}, len(found)) == ({"old"}, 2500)
    assert memory.find("Text 7")[0].segment.target == "old"


async def test_memories_are_found_while_another_server_changes_them_all_the_time(open_store):
    store, other = open_store(), open_store()
    await put_memory(store, ("Open it.", "x"))

    async def change() -> None:
        for number in range(6):
            await put_memory(other, ("Open it.", "x"), (f"Text {number}", "y"))

    changing = asyncio.create_task(change())
    while not changing.done():
        assert await targets(store, "Open it.") == ["site:x"]
        await asyncio.sleep(0)
    await changing


async def test_a_memory_that_another_server_replaces_while_it_is_opened_is_opened_again(
    open_store, tmp_path, monkeypatch
):
    store = open_store()
    await put_memory(store, ("Open it.", "old"))
    (path,) = header_paths(tmp_path)
    old = [memory_file.read_header(path, "site")]
    await put_memory(store, ("Open it.", "new"))
    read = memory_file.read_header
    monkeypatch.setattr(memory_file, "read_header", lambda *asked: old.pop() if old else read(*asked))
    header, memory = memory_file.open_memory(path, "site")
    assert (header, memory.segment(0).target) == (read(path, "site"), "new")


def header_paths(folder: Path) -> list[Path]:
    return list(folder.rglob("*.memory"))


async def test_on_a_full_disk_nothing_changes_and_nothing_is_left_over(open_store, tmp_path):
    store = open_store()
    await put_memory(store, ("Open it.", "x"))
    before = files(tmp_path)
    for size in (1000, 50_000):  # while segments arrive, and when they are stored
        with room(size), pytest.raises(DiskFull, match="disk is full"):
            await put_memory(store, *((f"Text {number}", "y" * 100) for number in range(100)))
        assert files(tmp_path) == before
    assert await targets(store, "Open it.") == ["site:x"]


def files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


async def test_a_kill_at_any_system_call_loses_nothing_acknowledged_and_leaves_nothing_half_written(tmp_path):
    outcomes = await asyncio.to_thread(outcomes_of_kills, "memory", tmp_path, 60)
    ends = set[int]()
    for each in outcomes:
        assert len(each["found"]) == ITEMS
        (number,) = set(each["found"])
        ends.add(number - each["before"])
        assert len(each["files"]) == 2, each["files"]
    assert all(each["killed"] for each in outcomes)
    assert ends == {0, 1}  # killed before and after the change
