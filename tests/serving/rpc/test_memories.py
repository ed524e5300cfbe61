"""MemoryService: what is stored is read and looked up, changed as a whole, and seen by its owner alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.rpc import code_pb2

from lingon.serving.auth.api_keys import new_key
from lingon.translation.v1 import stores_pb2 as pb
from lingon.translation.v1 import stores_pb2_grpc as pb_grpc
from lingon.translation.v1.translation_pb2 import MemoryMatch, Segment, Span
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import RunningServer, details, failure, running

OPEN = Segment(source="Open the file.", target="Öffnen Sie die Datei.", origin="site.tmx", changed=7)
CLOSE = Segment(source="Close the window.", target="Schließen Sie das Fenster.", before="Open the file.")
FIELDS: dict[str, Any] = {"name": "site", "source_language_code": "en", "target_language_code": "de"}


def stub_of(server: RunningServer) -> Any:
    return pb_grpc.MemoryServiceStub(server.channel)


def messages(*parts: Sequence[Segment], **fields: Any) -> Iterable[pb.PutMemoryRequest]:
    """The requests of a PutMemory; parts: the segments of each."""
    yield pb.PutMemoryRequest(header=pb.PutMemoryHeader(**{**FIELDS, **fields}), segments=parts[0] if parts else ())
    for part in parts[1:]:
        yield pb.PutMemoryRequest(segments=part)


async def put(stub: Any, *parts: Sequence[Segment], key: str = "", **fields: Any) -> pb.Memory:
    metadata = bearer(key) if key else ()
    found: pb.Memory = await stub.PutMemory(messages(*parts, **fields), metadata=metadata)
    return found


async def read(stub: Any) -> list[Segment]:
    return [each async for part in stub.ReadMemory(pb.ReadMemoryRequest(name="site")) for each in part.segments]


async def names(stub: Any, key: str = "") -> list[str]:
    reply = await stub.ListMemories(pb.ListMemoriesRequest(), metadata=bearer(key) if key else ())
    return [each.name for each in reply.memories]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running(data_dir=tmp_path / "data") as running_server:
        yield running_server


async def test_segments_are_read_as_they_were_stored_in_their_order(server: RunningServer):
    stub = stub_of(server)
    stored = await put(stub, [OPEN], [CLOSE], label="Site")
    assert (stored.name, stored.label, stored.segments, stored.target_language_code) == ("site", "Site", 2, "de")
    assert await read(stub) == [OPEN, CLOSE]
    assert await stub.GetMemory(pb.GetMemoryRequest(name="site")) == stored
    assert await names(stub) == ["site"]


async def test_segments_are_sent_in_messages_of_a_thousand_at_most(server: RunningServer):
    stub, many = stub_of(server), [Segment(source=f"Text {number}", target="x") for number in range(2500)]
    await put(stub, many[:1000], many[1000:2000], many[2000:])
    parts = [list(part.segments) async for part in stub.ReadMemory(pb.ReadMemoryRequest(name="site"))]
    assert [len(part) for part in parts] == [1000, 1000, 500]
    assert [each for part in parts for each in part] == many


async def test_a_put_adds_segments_and_one_with_the_same_source_and_neighbours_replaces_the_earlier(
    server: RunningServer,
):
    stub = stub_of(server)
    await put(stub, [OPEN, CLOSE], label="Site")
    newer = Segment(source=OPEN.source, target="Datei öffnen.")
    other = Segment(source=CLOSE.source, target="Fenster schließen.")
    changed = await put(stub, [newer, other])
    assert (changed.segments, changed.label) == (3, "Site")
    assert sorted(each.target for each in await read(stub)) == sorted([CLOSE.target, newer.target, other.target])


async def test_a_put_that_replaces_leaves_the_new_segments_alone(server: RunningServer, tmp_path: Path):
    stub = stub_of(server)
    await put(stub, [OPEN])
    await put(stub, [CLOSE], replace=True)
    assert await read(stub) == [CLOSE]
    assert len(folders_of_segments(tmp_path)) == 1


def folders_of_segments(folder: Path) -> list[Path]:
    return list(folder.rglob("*.segments"))


async def test_texts_are_looked_up_each_as_one_segment(server: RunningServer):
    stub = stub_of(server)
    await put(stub, [OPEN, CLOSE])
    texts = ["open  the file.", "Close the windows.", "Nothing like it"]
    found = (await stub.LookUp(pb.LookUpRequest(name="site", texts=texts))).results
    exact, fuzzy, nothing = (list(each.matches) for each in found)
    assert exact == [
        MemoryMatch(
            memory="site",
            source=OPEN.source,
            target=OPEN.target,
            score=100,
            source_span=Span(end=len(texts[0])),
            origin="site.tmx",
        )
    ]
    assert [(each.target, each.score) for each in fuzzy] == [(CLOSE.target, 94)]
    assert nothing == []
    strict = pb.LookUpRequest(name="site", texts=texts, min_score=100)
    assert [len(each.matches) for each in (await stub.LookUp(strict)).results] == [1, 0, 0]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"texts": []}, "texts"),
        ({"texts": ["a"] * 300}, "texts"),
        ({"texts": ["a", "b" * 10_001]}, "texts[1]"),
        ({"texts": ["a"], "min_score": 49}, "min_score"),
        ({"texts": ["a"], "min_score": 101}, "min_score"),
        ({"texts": ["a"], "max_matches": 21}, "max_matches"),
        ({"texts": ["a"], "name": "a/b"}, "name"),
    ],
)
async def test_a_look_up_out_of_bounds_is_refused(server: RunningServer, fields: Any, field: str):
    stub = stub_of(server)
    await put(stub, [OPEN])
    status, _ = await failure(stub.LookUp(pb.LookUpRequest(**{"name": "site", **fields})))
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert details(status)["BadRequest"].field_violations[0].field == field


@pytest.mark.parametrize(
    ("parts", "fields", "field", "message"),
    [
        ([[OPEN], [Segment(source=" ", target="x")]], {}, "segments[1]", "source is empty"),
        ([[OPEN, Segment(source="a" * 10_001, target="x")]], {}, "segments[1]", "at most 10,000"),
        ([[OPEN] * 1001], {}, "segments", "at most 1000 segments, got 1001"),
        ([[OPEN]], {"name": "?"}, "header.name", "1 to 64"),
        ([[OPEN]], {"label": "x" * 1025}, "header.label", "at most 1,024"),
        ([[OPEN]], {"source_language_code": ""}, "header.source_language_code", "BCP-47"),
    ],
)
async def test_what_is_refused_is_named_in_one_line_and_nothing_is_stored(
    server: RunningServer, tmp_path: Path, parts: Any, fields: Any, field: str, message: str
):
    stub = stub_of(server)
    status, _ = await failure(put(stub, *parts, **fields))
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert details(status)["BadRequest"].field_violations[0].field == field
    assert message in status.message
    assert await names(stub) == []
    assert folders_of_segments(tmp_path) == []


async def test_the_languages_of_a_memory_do_not_change(server: RunningServer):
    stub = stub_of(server)
    await put(stub, [OPEN])
    for replace in (False, True):
        status, _ = await failure(put(stub, [CLOSE], target_language_code="fr", replace=replace))
        assert (status.code, "from en to de, not from en to fr" in status.message) == (code_pb2.INVALID_ARGUMENT, True)
    assert await read(stub) == [OPEN]


async def test_versions_grow_and_a_change_expects_one(server: RunningServer):
    stub = stub_of(server)
    first = await put(stub, [OPEN], create=True)
    second = await put(stub, [CLOSE], expected_version=first.version)
    assert second.version > first.version
    found = [
        await failure(put(stub, [OPEN], **each)) for each in ({"expected_version": first.version}, {"create": True})
    ]
    assert [status.code for status, _ in found] == [code_pb2.ABORTED, code_pb2.ALREADY_EXISTS]
    await stub.DeleteMemory(pb.DeleteMemoryRequest(name="site"))
    assert (await put(stub, [OPEN])).version > second.version


async def test_a_removed_memory_leaves_nothing(server: RunningServer, tmp_path: Path):
    stub = stub_of(server)
    await put(stub, [OPEN])
    await stub.DeleteMemory(pb.DeleteMemoryRequest(name="site"))
    assert await names(stub) == []
    assert folders_of_segments(tmp_path) == []
    calls = [
        stub.GetMemory(pb.GetMemoryRequest(name="site")),
        stub.DeleteMemory(pb.DeleteMemoryRequest(name="site")),
        stub.LookUp(pb.LookUpRequest(name="site", texts=["a"])),
    ]
    for call in calls:
        status, _ = await failure(call)
        assert (status.code, status.message) == (code_pb2.NOT_FOUND, "there is no memory site")
        assert details(status)["ResourceInfo"].resource_type == "memory"


async def test_a_key_sees_its_own_memories_alone_within_its_quotas(tmp_path: Path):
    one, other = new_key(), new_key()
    keys = write_key_file(tmp_path, {"one": one, "other": other})
    async with running(data_dir=tmp_path / "data", api_keys=keys, max_memories=1, max_stored_bytes=3_300_000) as server:
        stub = stub_of(server)
        await put(stub, [OPEN], key=one)
        assert (await names(stub, one), await names(stub, other)) == (["site"], [])
        look_up = stub.LookUp(pb.LookUpRequest(name="site", texts=["a"]), metadata=bearer(other))
        status, _ = await failure(look_up)
        assert status.code == code_pb2.NOT_FOUND
        status, _ = await failure(put(stub, [OPEN], key=one, name="more"))
        assert (status.code, "you have 1 memories" in status.message) == (code_pb2.RESOURCE_EXHAUSTED, True)
        large = [Segment(source=f"{number} {'long ' * 50}", target="x" * 200) for number in range(700)]
        status, _ = await failure(put(stub, large, key=one))
        assert (status.code, "keeps 3,300,000" in status.message) == (code_pb2.RESOURCE_EXHAUSTED, True)
        assert len(folders_of_segments(tmp_path)) == 1
        await put(stub, [CLOSE], key=one)
        await put(stub, [OPEN], key=other)
        assert len(folders_of_segments(tmp_path)) == 2


async def test_a_damaged_memory_is_named_in_one_line_and_can_be_removed(server: RunningServer, tmp_path: Path):
    stub = stub_of(server)
    await put(stub, [OPEN])
    spoil(tmp_path, "sources.bin")
    status, _ = await failure(stub.LookUp(pb.LookUpRequest(name="site", texts=["a"])))
    assert (status.code, "site is damaged" in status.message) == (code_pb2.DATA_LOSS, True)
    spoil(tmp_path, "site.memory")
    status, _ = await failure(stub.GetMemory(pb.GetMemoryRequest(name="site")))
    assert status.code == code_pb2.DATA_LOSS
    assert await names(stub) == ["site"]
    await stub.DeleteMemory(pb.DeleteMemoryRequest(name="site"))
    await put(stub, [CLOSE])
    assert await read(stub) == [CLOSE]
    assert len(folders_of_segments(tmp_path)) == 1


def spoil(folder: Path, name: str) -> None:
    (path,) = folder.rglob(name)
    path.write_bytes(b"{")


async def test_without_a_folder_all_methods_are_unimplemented():
    async with running() as server:
        stub = stub_of(server)
        for call in (put(stub, [OPEN]), names(stub), stub.LookUp(pb.LookUpRequest(name="a", texts=["a"]))):
            status, _ = await failure(call)
            assert (status.code, "--data-dir" in status.message) == (code_pb2.UNIMPLEMENTED, True)
