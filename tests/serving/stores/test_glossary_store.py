"""Glossaries on disk: found for translations, shared by processes, and whole after a kill or on a full disk."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from lingon.errors import DiskFull, NotStored, SettingsError, StoreBusy
from lingon.serving.stores import owners
from lingon.serving.stores.data_dir import RECEIVED_AT_ONCE, DataDir, StoreLimits
from lingon.serving.stores.glossaries import GlossaryStore
from lingon.serving.stores.owners import file_name, name_of
from lingon.translation.v1 import stores_pb2 as pb
from lingon.translation.v1.translation_pb2 import Term
from tests.support.full_disk import room
from tests.support.stores import ITEMS, outcomes_of_kills, put_glossary
from tests.support.timing import eventually


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[..., GlossaryStore]]:
    """A function that opens the same folder as another server does."""
    opened = []

    def open_one(**limits: int) -> GlossaryStore:
        opened.append(DataDir(tmp_path, StoreLimits()))
        return GlossaryStore(opened[-1], **limits)

    yield open_one
    for each in opened:
        each.close()


async def targets(store: GlossaryStore, text: str, *names: str, pair: tuple[str, str] = ("en", "de")) -> list[str]:
    """The targets that the glossaries have for a text, as GLOSSARY:TARGET."""
    found = await store.find("", names or ("legal",), *pair)
    return [f"{name}:{each.term.target}" for name, matcher in found for each in matcher.find(text)]


async def test_glossaries_are_found_in_the_order_of_their_names_without_those_of_other_languages(open_store):
    store = open_store()
    await put_glossary(store, ("house", "Haus"), name="b")
    await put_glossary(store, ("house", "Heim"), name="a")
    await put_glossary(store, ("house", "maison"), name="c", pair="en-fr")
    assert await targets(store, "A house", "b", "c", "a") == ["b:Haus", "a:Heim"]
    with pytest.raises(NotStored, match="no glossary d"):
        await store.find("", ["a", "d"], "en", "de")


async def test_an_owner_finds_its_own_glossaries_alone(open_store):
    store = open_store()
    await put_glossary(store, ("house", "Haus"), caller="key/one")
    await put_glossary(store, ("house", "Heim"), caller="key/other")
    (found,) = await store.find("key/one", ["legal"], "en", "de")
    assert found[1].find("house")[0].term.target == "Haus"
    for caller in ("", "address/192.0.2.1", "certificate/one", "key/"):
        with pytest.raises(NotStored):
            await store.find(caller, ["legal"], "en", "de")


async def test_all_addresses_are_one_owner(open_store):
    store = open_store()
    await put_glossary(store, ("house", "Haus"), caller="address/192.0.2.1")
    assert [each.name for each in await store.all("http/192.0.2.2")] == ["legal"]


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("en", "de"), "plain"),
        (("en", "de-AT"), "Austrian"),
        (("en-GB", "de-CH"), "British"),
        (("eng_Latn", "deu_Latn"), "plain"),
        (("en", "pt-BR"), "Portuguese"),
        (("en", "fr"), ""),
        (("de", "en"), ""),
    ],
)
async def test_a_dictionary_serves_its_primary_subtags_and_the_same_tags_come_first(open_store, pair, expected):
    store = open_store()
    for tags, target in {
        "en-de": "plain",
        "en-de-AT": "Austrian",
        "en_GB-de-DE": "German",
        "en_GB-de": "British",
        "en-pt-PT": "Portuguese",
    }.items():
        await put_glossary(store, ("house", target), pair=tags)
    assert await targets(store, "house", pair=pair) == ([f"legal:{expected}"] if expected else [])


async def test_a_matcher_is_loaded_once_until_its_glossary_changes(open_store):
    store = open_store()
    await put_glossary(store, ("house", "Haus"))
    first, second = await asyncio.gather(*(store.find("", ["legal"], "en", "de") for _ in range(2)))
    assert first[0][1] is second[0][1]
    await put_glossary(store, ("house", "Heim"))
    assert first[0][1].find("house")[0].term.target == "Haus"
    assert await targets(store, "house") == ["legal:Heim"]


async def test_a_change_or_removal_by_another_server_is_seen_by_the_next_call(open_store):
    store, other = open_store(), open_store()
    await put_glossary(store, ("house", "Haus"))
    for target in map(str, range(5)):
        await put_glossary(other, ("house", target))
        assert await targets(store, "house") == [f"legal:{target}"]
    await other.delete("", "legal")
    with pytest.raises(NotStored):
        await store.find("", ["legal"], "en", "de")


async def test_the_least_recently_used_matchers_leave_the_memory(open_store):
    store = open_store(matcher_bytes=30_000)
    for name in "abc":
        await put_glossary(store, *((f"word{number}", "x") for number in range(30)), name=name)
    kept = {name: (await store.find("", [name], "en", "de"))[0][1] for name in "ab"}
    assert sum(each.size_bytes for each in kept.values()) < 30_000 < 3 * kept["a"].size_bytes
    await store.find("", ["a"], "en", "de")
    await store.find("", ["c"], "en", "de")
    found = {name: (await store.find("", [name], "en", "de"))[0][1] for name in "ab"}
    assert (found["a"] is kept["a"], found["b"] is kept["b"]) == (True, False)


async def test_one_of_several_callers_that_wait_for_a_matcher_may_leave(open_store):
    store = open_store()
    await put_glossary(store, ("house", "Haus"))
    leaving, staying = (asyncio.create_task(store.find("", ["legal"], "en", "de")) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert len(await staying) == 1
    gc.collect()


async def test_readers_keep_the_version_with_which_they_began(open_store):
    store = open_store()
    await put_glossary(store, *((f"word{number}", "old") for number in range(2500)))
    reading, found = store.read("", "legal", "en", "de"), []
    found += (await anext(reading)).terms
    await put_glossary(store, ("house", "new"))
    await store.delete("", "legal")
    found += [term async for part in reading for term in part.terms]
    assert {term.target for term in found} == {"old"}
    assert len(found) == 2500


async def test_of_many_changes_at_once_the_last_one_stays_and_each_has_its_version(open_store):
    stores = [open_store(), open_store()]
    done = await asyncio.gather(*(put_glossary(stores[number % 2], ("house", str(number))) for number in range(12)))
    versions = {each.version: number for number, each in enumerate(done)}
    assert len(versions) == 12
    assert await targets(stores[0], "house") == [f"legal:{versions[max(versions)]}"]


async def test_a_change_that_waits_too_long_for_another_process_is_refused(open_store, tmp_path, monkeypatch):
    monkeypatch.setattr(owners, "LOCK_SECONDS", 0.0)
    store = open_store()
    await put_glossary(store, ("house", "Haus"))
    (path,) = tmp_path.glob("*/lock")
    with path.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreBusy, match="try again"):
            await put_glossary(store, ("house", "Heim"))
    assert await targets(store, "house") == ["legal:Haus"]


async def test_an_owner_sends_only_so_many_changes_at_once(open_store):
    store, begun, rest = open_store(), 0, asyncio.Event()

    async def waiting() -> AsyncIterator[pb.PutGlossaryRequest]:
        nonlocal begun
        begun += 1
        await rest.wait()
        yield pb.PutGlossaryRequest(terms=[Term(source="house", target="Haus")])

    def start(caller: str) -> asyncio.Task[pb.Glossary]:
        header = pb.PutGlossaryHeader(name="legal", source_language_code="en", target_language_code="de")
        return asyncio.create_task(store.put(caller, header, waiting()))

    calls = [start("key/one") for _ in range(RECEIVED_AT_ONCE + 2)]
    await eventually(lambda: begun == RECEIVED_AT_ONCE)
    other = start("key/other")
    await eventually(lambda: begun == RECEIVED_AT_ONCE + 1)
    rest.set()
    await asyncio.gather(other, *calls)


@pytest.mark.parametrize("size", [100, 12_000])
async def test_on_a_full_disk_nothing_changes_and_nothing_is_left_over(open_store, tmp_path, size):
    store = open_store()
    await put_glossary(store, *((f"word{number}", "x") for number in range(700)), pair="en-fr")
    await put_glossary(store, ("house", "Haus"))
    before = files(tmp_path)
    with room(size), pytest.raises(DiskFull, match="disk is full"):  # while terms arrive, and when they are stored
        await put_glossary(store, *((f"word{number}", "x") for number in range(200)))
    assert files(tmp_path) == before
    assert await targets(store, "house") == ["legal:Haus"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("kind", "terms"), [("glossary", ITEMS), ("sets", 6 * ITEMS)])
async def test_a_kill_at_any_system_call_loses_nothing_acknowledged_and_leaves_nothing_half_written(
    tmp_path, kind, terms
):
    outcomes = await asyncio.to_thread(outcomes_of_kills, kind, tmp_path, 60)
    ends = set[int]()
    for each in outcomes:
        assert len(each["found"]) == terms
        (number,) = set(each["found"])
        ends.add(number - each["before"])
        assert len(each["files"]) == 1, each["files"]
    assert all(each["killed"] for each in outcomes)
    assert ends == {0, 1}  # killed before and after the change


async def test_a_folder_that_cannot_be_used_is_named_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"data_dir: .*file"):
        DataDir(tmp_path / "file", StoreLimits())


@pytest.mark.parametrize("name", ["a", "A", "aB", "..", "A.b-c_D"])
def test_names_are_read_back_from_names_of_files_and_differ_also_without_case(name):
    assert name_of(file_name(name)) == name
    assert file_name(name) == file_name(name).lower()


async def test_what_is_stored_is_for_the_user_of_the_server_alone(open_store, tmp_path):
    await put_glossary(open_store(), ("house", "Haus"))
    modes = {path.stat().st_mode & 0o077 for path in tmp_path.glob("*/glossaries/*")}
    modes |= {path.stat().st_mode & 0o077 for path in tmp_path.glob("*")}
    assert modes == {0}


def test_a_file_system_without_locks_is_refused_at_the_start(tmp_path, monkeypatch):
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(SettingsError, match="has no locks"):
        DataDir(tmp_path, StoreLimits())
