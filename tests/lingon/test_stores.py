"""What a server keeps for its callers: the calls of the clients and the verbs of the command, against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from lingon import AsyncClient, ServerError
from lingon.cli.main import main
from lingon.client.steps import Retry
from lingon.errors import SettingsError
from lingon.memories.segment import Segment, SegmentError
from lingon.terms.term import Term, TermError
from tests.support.echo_engine import RunningServer, running
from tests.support.timing import eventually

Ask = Callable[..., Awaitable[Any]]
Verb = Callable[..., Awaitable[tuple[int, list[str], list[str]]]]

HOUSE = Term("house", "Haus", variants=("Hauses",), forbid=("Heim",), exact=True)
SEA = Term("sea", "Meer", stems=True)
PAIR = {"source": "en", "target": "de"}


async def test_a_glossary_is_stored_listed_read_and_removed(ask: Ask, tmp_path: Path) -> None:
    many = [Term(f"word{number}", f"Wort{number}") for number in range(2500)]
    async with running(data_dir=tmp_path) as server:
        stored = await ask(server, "put_glossary", "legal", [HOUSE, SEA, *many], **PAIR, label="Contracts")
        assert (stored.name, stored.label, stored.dictionaries[0].terms) == ("legal", "Contracts", 2502)
        assert await ask(server, "glossary", "legal") == stored
        assert await ask(server, "glossaries") == [stored]
        assert await ask(server, "read_glossary", "legal", **PAIR) == [HOUSE, SEA, *many]
        await ask(server, "remove_glossary", "legal", **PAIR)
        assert (await ask(server, "glossary", "legal")).dictionaries == ()
        await ask(server, "remove_glossary", "legal")
        assert await ask(server, "glossaries") == []


async def test_a_glossary_without_terms_is_read_as_none(ask: Ask, tmp_path: Path) -> None:
    async with running(data_dir=tmp_path) as server:
        await ask(server, "put_glossary", "legal", [], **PAIR)
        assert await ask(server, "read_glossary", "legal", **PAIR) == []


async def test_options_of_a_change_reach_the_server(ask: Ask, tmp_path: Path) -> None:
    async with running(data_dir=tmp_path) as server:
        first = await ask(server, "put_glossary", "legal", [HOUSE], **PAIR, create=True)
        with pytest.raises(ServerError) as raised:
            await ask(server, "put_glossary", "legal", [SEA], **PAIR, create=True)
        assert raised.value.status == "ALREADY_EXISTS"
        await ask(server, "put_glossary", "legal", [SEA], **PAIR, merge=True, expected_version=first.version)
        with pytest.raises(ServerError) as raised:
            await ask(server, "put_glossary", "legal", [SEA], **PAIR, expected_version=first.version)
        assert raised.value.status == "ABORTED"
        assert await ask(server, "read_glossary", "legal", **PAIR) == [HOUSE, SEA]


async def test_errors_of_the_server_are_those_of_its_calls(ask: Ask, tmp_path: Path) -> None:
    async with running(data_dir=tmp_path) as server:
        for name, values in {"glossary": {}, "read_glossary": PAIR, "remove_glossary": {}}.items():
            with pytest.raises(ServerError, match="there is no glossary legal") as raised:
                await ask(server, name, "legal", **values)
            assert (raised.value.status, raised.value.reason) == ("NOT_FOUND", "NOT_STORED")


async def test_terms_that_contradict_each_other_are_not_sent(ask: Ask, tmp_path: Path) -> None:
    async with running(data_dir=tmp_path) as server:
        with pytest.raises(TermError, match="entries 1 and 2"):
            await ask(server, "put_glossary", "legal", [SEA, Term("Sea", "See")], **PAIR)
        with pytest.raises(SettingsError, match="expected_version = -1"):
            await ask(server, "put_glossary", "legal", [SEA], **PAIR, expected_version=-1)
        assert await ask(server, "glossaries") == []


async def test_a_change_is_sent_once_while_the_server_starts(tmp_path: Path) -> None:
    def refused(server: RunningServer) -> float:
        return server.metric("lingon_rejected_total", reason="DRAINING")

    retry = Retry(retries=2, first_pause=0.01)
    async with (
        running(ready=False, data_dir=tmp_path) as server,
        AsyncClient(f"127.0.0.1:{server.server.port}", retries=retry) as client,
    ):
        with pytest.raises(ServerError, match="the server is starting"):
            await client.put_glossary("legal", [HOUSE], source="en", target="de")
        assert refused(server) == 1
        with pytest.raises(ServerError, match="the server is starting"):
            await client.remove_memory("site")
        assert refused(server) == 2
        server.loader.gate.set()
        await eventually(lambda: server.server._serving)
        assert await client.glossaries() == []


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str]) -> Verb:
    """await verb(server, "glossaries", "list") gives exit code, standard output and standard error, as lines."""
    entries = [EntryPoint(name, f"lingon.cli.{name}:{name}", "lingon.verbs") for name in ("glossaries", "memories")]

    async def run(server: RunningServer, group: str, name: str, *arguments: object) -> Any:
        at = ("--server", f"127.0.0.1:{server.server.port}")
        code = await asyncio.to_thread(main, [group, name, *map(str, arguments), *at], entries)
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err.splitlines()

    return run


@pytest.fixture
def terms_file(tmp_path: Path) -> Path:
    return written(tmp_path / "terms.tsv", "house\tHaus\nsea\tMeer\n")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


async def test_verbs_store_list_show_and_remove_a_glossary(verb: Verb, terms_file: Path, tmp_path: Path) -> None:
    languages = ("--source", "en", "--target", "de")
    async with running(data_dir=tmp_path / "data") as server:
        code, (line,), _ = await verb(server, "glossaries", "add", "legal", terms_file, *languages, "--label", "Law")
        assert (code, line.startswith("legal: en to de 2 terms, "), line.endswith(", Law")) == (0, True, True)
        assert await verb(server, "glossaries", "list") == (0, [line], [])
        assert await verb(server, "glossaries", "show", "legal") == (0, ["house\tHaus", "sea\tMeer"], [])
        _, shown, _ = await verb(server, "glossaries", "show", "legal", "--json")
        assert [json.loads(each)["target"] for each in shown] == ["Haus", "Meer"]
        _, (listed,), _ = await verb(server, "glossaries", "list", "--json")
        assert json.loads(listed)["dictionaries"] == [{"source": "en", "target": "de", "terms": 2}]
        code, _, (error,) = await verb(server, "glossaries", "add", "legal", terms_file, *languages, "--create")
        assert (code, error) == (1, "lingon: error: there is a glossary legal already")
        await verb(server, "glossaries", "add", "legal", terms_file, "--source", "en", "--target", "fr")
        code, _, (error,) = await verb(server, "glossaries", "show", "legal")
        assert (code, "en to de, en to fr; choose one pair" in error) == (2, True)
        assert (await verb(server, "glossaries", "remove", "legal", *languages))[:2] == (
            0,
            ["legal: removed from en to de"],
        )
        assert (await verb(server, "glossaries", "remove", "legal"))[0] == 0
        assert await verb(server, "glossaries", "list") == (0, [], [])
        code, _, (error,) = await verb(
            server, "glossaries", "add", "legal", terms_file, "--source", "e1", "--target", "de"
        )
        assert (code, "lingon: error: --source-language must be" in error) == (1, True)
        code, _, (error,) = await verb(server, "glossaries", "remove", "legal")
        assert (code, error) == (1, "lingon: error: there is no glossary legal")


async def test_a_bad_file_is_named_and_nothing_is_stored(verb: Verb, tmp_path: Path) -> None:
    terms_file = written(tmp_path / "terms.tsv", "house\tHaus\nhouse\tHeim\n")
    async with running(data_dir=tmp_path / "data") as server:
        code, out, (error,) = await verb(
            server, "glossaries", "add", "legal", terms_file, "--source", "en", "--target", "de"
        )
        assert (code, out) == (1, [])
        assert "terms.tsv" in error
        assert "1 and 2" in error
        assert await verb(server, "glossaries", "list") == (0, [], [])


OPEN = Segment("Open the file.", "Öffnen Sie die Datei.", "", "Close it.", "site.tmx", 7)
CLOSE = Segment("Close it.", "Schließen Sie es.", "Open the file.")


async def test_a_memory_is_stored_listed_read_looked_up_and_removed(ask: Ask, tmp_path: Path) -> None:
    many = [Segment(f"Text {number}", f"Text {number}") for number in range(2500)]
    async with running(data_dir=tmp_path) as server:
        stored = await ask(server, "put_memory", "site", iter([OPEN, CLOSE, *many]), **PAIR, label="Site")
        assert (stored.name, stored.label, stored.source, stored.segments) == ("site", "Site", "en", 2502)
        assert await ask(server, "memory", "site") == stored
        assert await ask(server, "memories") == [stored]
        assert await ask(server, "read_memory", "site") == [OPEN, CLOSE, *many]
        exact, nothing = await ask(server, "look_up", "site", ["open the file.", "Elsewhere"], min_score=90)
        assert [(each.target, each.score, each.origin) for each in exact] == [(OPEN.target, 100, "site.tmx")]
        assert nothing == []
        assert (await ask(server, "put_memory", "site", [CLOSE], **PAIR, replace=True)).segments == 1
        await ask(server, "remove_memory", "site")
        assert await ask(server, "memories") == []


async def test_large_terms_and_segments_are_sent_and_read_in_messages_that_fit(ask: Ask, tmp_path: Path) -> None:
    long = "x" * 256
    terms = [Term(f"{number} {long[:250]}", long, (long,), forbid=(long[:9],)) for number in range(1500)]
    segments = [Segment(f"{number} {'x' * 9000}", "y" * 9000) for number in range(300)]
    async with running(data_dir=tmp_path, max_message_bytes=2**20 + 30_000) as server:
        await ask(server, "put_glossary", "legal", terms, **PAIR)
        assert await ask(server, "read_glossary", "legal", **PAIR) == terms
        await ask(server, "put_memory", "site", segments, **PAIR)
        assert await ask(server, "read_memory", "site") == segments


async def test_an_error_while_segments_are_read_is_raised_and_nothing_is_stored(ask: Ask, tmp_path: Path) -> None:
    def broken(after: int) -> Iterator[Segment]:
        for number in range(after):
            yield Segment(f"Text {number}", "x")
        raise LookupError("planted")

    async with running(data_dir=tmp_path) as server:
        for after in (0, 10, 2500):
            with pytest.raises(LookupError, match="planted"):
                await ask(server, "put_memory", "site", broken(after), **PAIR)
        many = [*[OPEN] * 1501, Segment("", "x")]
        with pytest.raises(SegmentError, match="segment 1,502: the source is empty"):
            await ask(server, "put_memory", "site", many, **PAIR)
        assert await ask(server, "memories") == []


async def test_verbs_store_list_show_look_up_and_remove_a_memory(verb: Verb, tmp_path: Path) -> None:
    file = written(tmp_path / "site.tsv", "Open the file.\tDatei öffnen.\nClose it.\tSchließen.\n")
    languages = ("--source", "en", "--target", "de")
    async with running(data_dir=tmp_path / "data") as server:
        code, (line,), _ = await verb(server, "memories", "add", "site", file, *languages, "--label", "Site")
        assert (code, line.startswith("site: en to de 2 segments, "), line.endswith(", Site")) == (0, True, True)
        assert await verb(server, "memories", "list") == (0, [line], [])
        lines = ["Open the file.\tDatei öffnen.", "Close it.\tSchließen."]
        assert await verb(server, "memories", "show", "site") == (0, lines, [])
        copy = tmp_path / "copy.tmx"
        assert await verb(server, "memories", "show", "site", "--output", copy) == (
            0,
            [f"written: {copy}, 2 segments"],
            [],
        )
        assert "Schließen." in copy.read_text("utf-8")
        found = await verb(server, "memories", "look-up", "site", "Open the files.", "--min-score", 80)
        assert found == (0, ["93\tOpen the file.\tDatei öffnen."], [])
        _, (shown,), _ = await verb(server, "memories", "look-up", "site", "close it.", "--json")
        assert [each["score"] for each in json.loads(shown)["matches"]] == [100]
        assert await verb(server, "memories", "remove", "site") == (0, ["site: removed"], [])
        code, _, (error,) = await verb(server, "memories", "show", "site")
        assert (code, error) == (1, "lingon: error: there is no memory site")


async def test_a_bad_file_of_segments_is_named_and_nothing_is_stored(verb: Verb, tmp_path: Path) -> None:
    file = written(tmp_path / "site.tmx", "<tmx><body><tu>")
    async with running(data_dir=tmp_path / "data") as server:
        code, _, (error,) = await verb(server, "memories", "add", "site", file, "--source", "en", "--target", "de")
        assert (code, "site.tmx" in error) == (1, True)
        assert await verb(server, "memories", "list") == (0, [], [])
