"""Metrics say how much callers have stored and what memories have for their sentences."""

from __future__ import annotations

from pathlib import Path

from lingon.serving.observability.metrics import LOOK_UPS
from lingon.serving.stores.data_dir import DataDir, StoreLimits
from lingon.serving.stores.figures import Figures, StoredFigures
from lingon.serving.stores.glossaries import GlossaryStore
from lingon.serving.stores.memories import MemoryStore
from lingon.translation.v1 import stores_pb2 as pb
from lingon.translation.v1 import stores_pb2_grpc as pb_grpc
from lingon.translation.v1.translation_pb2 import Segment
from tests.support.echo_engine import RunningServer, running
from tests.support.stores import put_glossary, put_memory
from tests.support.timing import eventually


def size(data_dir: Path, kind: str) -> int:
    """The bytes of what is stored of a kind by all owners."""
    return sum(path.stat().st_size for path in data_dir.glob(f"*/{kind}/**/*") if path.is_file())


def damage(data_dir: Path) -> None:
    (path,) = data_dir.glob("*/glossaries/*.glossary")
    path.write_bytes(b"x")


async def test_the_figures_are_those_of_all_owners_and_of_changes_by_other_servers(tmp_path: Path):
    here, other = (DataDir(tmp_path, StoreLimits()) for _ in range(2))
    figures, glossaries, memories = StoredFigures(here), GlossaryStore(other), MemoryStore(other)
    assert await figures.count() == (Figures(), Figures())
    await put_glossary(glossaries, ("cat", "Katze"), ("dog", "Hund"))
    await put_glossary(glossaries, ("cat", "chat"), pair="en-fr")
    await put_glossary(glossaries, ("cat", "Kater"), name="second", caller="key/one")
    await put_memory(memories, ("Open.", "Auf."), ("Close.", "Zu."))
    await put_memory(memories, ("Open.", "Offen."), caller="key/one")
    stored = Figures(2, 4, size(tmp_path, "glossaries")), Figures(2, 3, size(tmp_path, "memories"))
    assert await figures.count() == stored
    await put_memory(memories, ("Save.", "Sichern."))
    await glossaries.delete("key/one", "second")
    found = await figures.count()
    assert [each[:2] for each in found] == [(1, 3), (2, 4)]
    assert await figures.count() == found
    damage(tmp_path)
    assert (await figures.count())[0] == Figures(1)
    for each in (here, other):
        each.close()


async def test_a_server_shows_what_is_stored_and_counts_look_ups_by_the_best_match(tmp_path: Path):
    folder = tmp_path / "data"
    data_dir = DataDir(folder, StoreLimits())
    memories, glossaries = MemoryStore(data_dir), GlossaryStore(data_dir)
    await put_glossary(glossaries, ("sea", "Meer"))
    await put_memory(
        memories, ("Where is the station?", "Wo ist der Bahnhof?"), ("Tom has 5 cars.", "Tom hat 5 Autos.")
    )
    data_dir.close()

    def looked_up(server: RunningServer) -> list[float]:
        return [server.metric("lingon_memory_lookups_total", result=result) for result in LOOK_UPS]

    async with running(data_dir=folder) as server:
        for kind, entries in (("glossary", 1), ("memory", 2)):
            await eventually(lambda kind=kind: server.metric("lingon_stored", kind=kind) == 1)
            assert server.metric("lingon_stored_entries", kind=kind) == entries
            assert server.metric("lingon_stored_bytes", kind=kind) > 0
        assert looked_up(server) == [0, 0, 0, 0]
        text = "Where is the station? Tom has 7 cars. It is raining."
        await server.call(text, memory={"memories": ["site"]})
        assert looked_up(server) == [0, 1, 1, 1]
        await server.call(text)
        stub = pb_grpc.MemoryServiceStub(server.channel)
        segment = Segment(source="Tom has 5 cars.", target="x", before="Where is the station?", after="It is raining.")
        header = pb.PutMemoryHeader(name="site", source_language_code="en", target_language_code="de")
        await stub.PutMemory(iter([pb.PutMemoryRequest(header=header, segments=[segment])]))
        await server.call(text.replace("7", "5"), memory={"memories": ["site"]})
        assert looked_up(server) == [1, 2, 1, 2]
        await stub.LookUp(pb.LookUpRequest(name="site", texts=["Tom has 5 cars.", "Who?"]))
        assert looked_up(server) == [1, 3, 1, 3]
        assert server.metric("lingon_glossary_memory_bytes") == 0
        await server.call("the sea", glossaries=["legal"])
        assert server.metric("lingon_glossary_memory_bytes") > 0
