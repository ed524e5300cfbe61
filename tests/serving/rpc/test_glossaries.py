"""GlossaryService: what is stored is read, changed as a whole, refused in one line, and seen by its owner alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from lingon.serving.auth.api_keys import new_key
from lingon.serving.rpc import ports
from lingon.translation.v1 import stores_pb2 as pb
from lingon.translation.v1 import stores_pb2_grpc as pb_grpc
from lingon.translation.v1 import translation_pb2
from lingon.translation.v1.translation_pb2 import Term
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import RunningServer, details, failure, running
from tests.support.timing import eventually

HOUSE = Term(source="house", target="Haus")
SEA = Term(source="sea", target="Meer", variants=["Meere"], forbid=["See"])
FIELDS: dict[str, Any] = {"name": "legal", "source_language_code": "en", "target_language_code": "de"}


def stub_of(server: RunningServer) -> Any:
    return pb_grpc.GlossaryServiceStub(server.channel)


def messages(*parts: Sequence[Term], **fields: Any) -> Iterable[pb.PutGlossaryRequest]:
    """The requests of a PutGlossary; parts: the terms of each."""
    header = pb.PutGlossaryHeader(**{**FIELDS, **fields})
    yield pb.PutGlossaryRequest(header=header, terms=parts[0] if parts else ())
    for part in parts[1:]:
        yield pb.PutGlossaryRequest(terms=part)


async def put(stub: Any, *parts: Sequence[Term], key: str = "", **fields: Any) -> pb.Glossary:
    metadata = bearer(key) if key else ()
    found: pb.Glossary = await stub.PutGlossary(messages(*parts, **fields), metadata=metadata)
    return found


async def read(stub: Any, name: str = "legal", source: str = "en", target: str = "de") -> list[Term]:
    request = pb.ReadGlossaryRequest(name=name, source_language_code=source, target_language_code=target)
    return [term async for part in stub.ReadGlossary(request) for term in part.terms]


async def names(stub: Any, key: str = "") -> list[str]:
    reply = await stub.ListGlossaries(pb.ListGlossariesRequest(), metadata=bearer(key) if key else ())
    return [each.name for each in reply.glossaries]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    async with running(data_dir=tmp_path / "data") as running_server:
        yield running_server


async def test_terms_are_read_as_they_were_stored_in_their_order(server: RunningServer):
    stub = stub_of(server)
    stored = await put(stub, [SEA], [HOUSE], label="Contracts")
    assert (stored.name, stored.label, stored.version > 0) == ("legal", "Contracts", True)
    assert [(each.source_language_code, each.target_language_code, each.terms) for each in stored.dictionaries] == [
        ("en", "de", 2)
    ]
    assert await read(stub) == [SEA, HOUSE]
    assert await stub.GetGlossary(pb.GetGlossaryRequest(name="legal")) == stored


async def test_terms_are_sent_in_messages_of_a_thousand_at_most(server: RunningServer):
    stub, terms = stub_of(server), [Term(source=f"word{number}", target=f"Wort{number}") for number in range(2500)]
    await put(stub, terms[:1000], terms[1000:2000], terms[2000:])
    request = pb.ReadGlossaryRequest(name="legal", source_language_code="en", target_language_code="de")
    parts = [list(part.terms) async for part in stub.ReadGlossary(request)]
    assert [len(part) for part in parts] == [1000, 1000, 500]
    assert [term for part in parts for term in part] == terms


async def test_a_put_replaces_the_terms_of_its_pair_alone(server: RunningServer):
    stub = stub_of(server)
    await put(stub, [HOUSE], label="Contracts")
    await put(stub, [Term(source="house", target="maison")], target_language_code="fr")
    changed = await put(stub, [SEA])
    assert changed.label == "Contracts"
    assert await read(stub) == [SEA]
    assert [term.target for term in await read(stub, target="fr")] == ["maison"]


def of_pair(source: str, target: str, *terms: Term) -> pb.PutGlossaryRequest:
    pair = pb.GlossaryPair(source_language_code=source, target_language_code=target)
    return pb.PutGlossaryRequest(pair=pair, terms=terms)


async def test_a_put_of_several_pairs_changes_each_of_them_and_no_other_one(server: RunningServer):
    stub = stub_of(server)
    for target in ("de", "nl"):
        await put(stub, [Term(source="tree", target="x")], target_language_code=target)
    french, more = of_pair("en", "fr", Term(source="sea", target="mer")), pb.PutGlossaryRequest(terms=[HOUSE])
    stored = await stub.PutGlossary(iter([*messages([SEA]), french, more, of_pair("de", "en")]))
    pairs = [(each.source_language_code, each.target_language_code, each.terms) for each in stored.dictionaries]
    assert pairs == [("de", "en", 0), ("en", "de", 1), ("en", "fr", 2), ("en", "nl", 1)]
    assert [await read(stub), await read(stub, target="fr")] == [[SEA], [*french.terms, HOUSE]]
    await stub.PutGlossary(iter([*messages([HOUSE], merge=True), of_pair("en", "fr", SEA)]))
    assert [await read(stub), await read(stub, target="fr")] == [[SEA, HOUSE], [SEA, HOUSE]]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (of_pair("en", "fr", SEA, HOUSE, Term(source="Sea", target="x")), "from en to fr: entries 1 and 3: contradict"),
        (of_pair("EN", "de", HOUSE), "terms from en to de came before; a pair may come once"),
        (of_pair("en", "", HOUSE), "pair.target_language_code"),
    ],
)
async def test_nothing_of_a_put_stays_if_one_of_its_pairs_is_refused(server: RunningServer, part: Any, message: str):
    stub = stub_of(server)
    stored = await put(stub, [HOUSE])
    status, _ = await failure(stub.PutGlossary(iter([*messages([SEA]), of_pair("de", "en", SEA), part])))
    assert (status.code, message in status.message) == (code_pb2.INVALID_ARGUMENT, True), status.message
    assert await stub.GetGlossary(pb.GetGlossaryRequest(name="legal")) == stored
    assert await read(stub) == [HOUSE]


async def test_a_merge_adds_terms_and_replaces_those_with_the_same_source(server: RunningServer):
    stub = stub_of(server)
    await put(stub, [HOUSE, SEA])
    other = Term(source="House", target="Gebäude")
    await put(stub, [Term(source="tree", target="Baum"), other], merge=True)
    assert [term.target for term in await read(stub)] == ["Gebäude", "Meer", "Baum"]


async def test_a_merge_without_terms_changes_the_label_alone(server: RunningServer):
    stub = stub_of(server)
    await put(stub, [HOUSE])
    assert (await put(stub, label="New", merge=True)).label == "New"
    assert await read(stub) == [HOUSE]


async def test_each_change_has_a_higher_version_even_after_a_removal(server: RunningServer):
    stub, versions = stub_of(server), []
    for _ in range(3):
        versions += [(await put(stub, [HOUSE])).version, (await put(stub, [SEA], merge=True)).version]
        await stub.DeleteGlossary(pb.DeleteGlossaryRequest(name="legal"))
    assert versions == sorted(set(versions))


async def test_a_change_with_another_version_than_the_expected_one_is_aborted(server: RunningServer):
    stub = stub_of(server)
    first = await put(stub, [HOUSE])
    second = await put(stub, [SEA], expected_version=first.version)
    status, _ = await failure(put(stub, [HOUSE], expected_version=first.version))
    assert (status.code, details(status)["ErrorInfo"].reason) == (code_pb2.ABORTED, "VERSION_CHANGED")
    assert f"{second.version}, not {first.version}" in status.message
    assert await read(stub) == [SEA]


async def test_a_glossary_is_created_once(server: RunningServer):
    stub = stub_of(server)
    await put(stub, [HOUSE], create=True)
    status, _ = await failure(put(stub, [SEA], create=True))
    assert status.code == code_pb2.ALREADY_EXISTS
    assert await read(stub) == [HOUSE]


@pytest.mark.parametrize(
    ("parts", "fields", "field", "message"),
    [
        ([[HOUSE], [Term(source="house", target="Heim")]], {}, "terms[1]", "entries 1 and 2"),
        ([[HOUSE, Term(target="Heim")]], {}, "terms[1]", "entry 2"),
        ([[Term(source="a" * 257, target="b")]], {}, "terms[0]", "at most 256"),
        ([[HOUSE] * 1001], {}, "terms", "at most 1000 terms, got 1001"),
        ([[Term(source="a", target="b", stems=True)]], {"source_language_code": "ja"}, "terms[0]", "no stems"),
        ([[HOUSE]], {"name": "a/b"}, "header.name", "got 'a/b'"),
        ([[HOUSE]], {"name": ""}, "header.name", "1 to 64"),
        ([[HOUSE]], {"name": "x" * 65}, "header.name", "1 to 64"),
        ([[HOUSE]], {"label": "x" * 1025}, "header.label", "at most 1,024"),
        ([[HOUSE]], {"label": "a\nb"}, "header.label", "one line"),
        ([[HOUSE]], {"target_language_code": "no language"}, "header.target_language_code", "BCP-47"),
    ],
)
async def test_what_is_refused_is_named_in_one_line_and_nothing_is_stored(
    server: RunningServer, parts: Any, fields: Any, field: str, message: str
):
    stub = stub_of(server)
    status, _ = await failure(put(stub, *parts, **fields))
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert details(status)["BadRequest"].field_violations[0].field == field
    assert message in status.message
    assert "\n" not in status.message
    assert await names(stub) == []


async def test_the_first_message_alone_has_the_header(server: RunningServer):
    stub, header = stub_of(server), pb.PutGlossaryHeader(**FIELDS)
    for requests in ([], [pb.PutGlossaryRequest(terms=[HOUSE])], [pb.PutGlossaryRequest(header=header)] * 2):
        status, _ = await failure(stub.PutGlossary(iter(requests)))
        assert details(status)["BadRequest"].field_violations[0].field == "header"


async def test_more_terms_than_the_setting_are_refused(tmp_path: Path):
    async with running(data_dir=tmp_path, max_glossary_entries=3) as server:
        stub = stub_of(server)
        await put(stub, [HOUSE, SEA])
        many = [Term(source=f"word{number}", target="x") for number in range(4)]
        for merge, terms in ((False, many), (True, many[:2])):
            status, _ = await failure(put(stub, terms, merge=merge))
            assert (status.code, details(status)["ErrorInfo"].reason) == (code_pb2.RESOURCE_EXHAUSTED, "STORE_FULL")
            assert "at most 3" in status.message
        assert await read(stub) == [HOUSE, SEA]


async def test_a_key_sees_and_changes_its_own_glossaries_alone(tmp_path: Path):
    one, other = new_key(), new_key()
    keys = write_key_file(tmp_path, {"one": one, "other": other})
    async with running(data_dir=tmp_path / "data", api_keys=keys) as server:
        stub = stub_of(server)
        await put(stub, [HOUSE], key=one)
        assert (await names(stub, one), await names(stub, other)) == (["legal"], [])
        calls = [
            stub.GetGlossary(pb.GetGlossaryRequest(name="legal"), metadata=bearer(other)),
            stub.DeleteGlossary(pb.DeleteGlossaryRequest(name="legal"), metadata=bearer(other)),
            put(stub, [HOUSE], key=other, expected_version=7),
        ]
        for call in calls:
            status, _ = await failure(call)
            assert status.code == code_pb2.NOT_FOUND
            assert details(status)["ResourceInfo"].resource_name == "legal"
        await put(stub, [SEA], key=other)
        await stub.DeleteGlossary(pb.DeleteGlossaryRequest(name="legal"), metadata=bearer(other))
        assert await names(stub, one) == ["legal"]
        status, _ = await failure(put(stub, [HOUSE]))
        assert status.code == code_pb2.UNAUTHENTICATED


async def test_the_quotas_are_those_of_each_key(tmp_path: Path):
    one, other = new_key(), new_key()
    keys = write_key_file(tmp_path, {"one": one, "other": other})
    async with running(data_dir=tmp_path / "data", api_keys=keys, max_glossaries=2, max_stored_bytes=3000) as server:
        stub = stub_of(server)
        for name in ("a", "b"):
            await put(stub, [HOUSE], key=one, name=name)
        status, _ = await failure(put(stub, [HOUSE], key=one, name="c"))
        assert (status.code, "you have 2 glossaries" in status.message) == (code_pb2.RESOURCE_EXHAUSTED, True)
        await put(stub, [HOUSE], key=other, name="c")
        large = [Term(source=f"word{number}", target="x" * 200) for number in range(20)]
        status, _ = await failure(put(stub, large, key=one, name="a"))
        assert (status.code, "keeps 3,000" in status.message) == (code_pb2.RESOURCE_EXHAUSTED, True)
        assert await names(stub, one) == ["a", "b"]
        assert await names(stub, other) == ["c"]


async def test_calls_are_charged_as_requests_of_the_key(tmp_path: Path):
    key = new_key()
    keys = write_key_file(tmp_path, {"one": key}, one={"requests_per_minute": 2})
    async with running(data_dir=tmp_path / "data", api_keys=keys) as server:
        stub = stub_of(server)
        await put(stub, [HOUSE], [SEA], key=key)
        assert await names(stub, key) == ["legal"]
        status, _ = await failure(put(stub, [HOUSE], key=key))
        assert details(status)["ErrorInfo"].reason == "QUOTA_EXCEEDED"


async def test_without_a_key_file_all_callers_share_their_glossaries(server: RunningServer):
    await put(stub_of(server), [HOUSE])
    local = pb_grpc.GlossaryServiceStub(server.server.channel)  # type: ignore[arg-type]
    assert await names(local) == ["legal"]


async def test_a_glossary_or_one_of_its_pairs_is_removed(server: RunningServer):
    stub = stub_of(server)
    await put(stub, [HOUSE])
    before = await put(stub, [HOUSE], target_language_code="fr")
    await stub.DeleteGlossary(pb.DeleteGlossaryRequest(**FIELDS))
    left = await stub.GetGlossary(pb.GetGlossaryRequest(name="legal"))
    assert [each.target_language_code for each in left.dictionaries] == ["fr"]
    assert left.version > before.version
    status, _ = await failure(stub.DeleteGlossary(pb.DeleteGlossaryRequest(**FIELDS)))
    assert status.code == code_pb2.NOT_FOUND
    status, _ = await failure(stub.DeleteGlossary(pb.DeleteGlossaryRequest(name="legal", source_language_code="en")))
    assert status.code == code_pb2.INVALID_ARGUMENT
    await stub.DeleteGlossary(pb.DeleteGlossaryRequest(name="legal"))
    assert await names(stub) == []


async def test_the_list_is_sorted_and_knows_names_that_differ_in_case_or_begin_with_dots(server: RunningServer):
    stub = stub_of(server)
    wanted = [".", "..", ".x.part", "A", "a", "a.glossary", "b-1_2"]
    for name in reversed(wanted):
        await put(stub, [HOUSE], name=name)
    assert await names(stub) == sorted(wanted)


async def test_without_a_folder_all_methods_are_unimplemented():
    async with running() as server:
        stub = stub_of(server)
        for call in (put(stub, [HOUSE]), names(stub), stub.DeleteGlossary(pb.DeleteGlossaryRequest(name="a"))):
            status, _ = await failure(call)
            assert status.code == code_pb2.UNIMPLEMENTED
            assert "--data-dir" in status.message


@pytest.mark.parametrize("breaks", ["call", "connection"])
async def test_a_call_that_its_client_ends_early_stores_nothing(server: RunningServer, breaks: str):
    """A server often gets the end of the requests before the cancellation."""
    for _ in range(60):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.server.port}") as channel:
            call = pb_grpc.GlossaryServiceStub(channel).PutGlossary()
            await call.write(next(iter(messages([HOUSE]))))
            if breaks == "call":
                call.cancel()
    await put(stub_of(server), [HOUSE], name="other")  # waits for those before it
    assert await names(stub_of(server)) == ["other"]


async def test_a_call_whose_next_message_does_not_arrive_ends_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ports, "RECEIVE_SECONDS", 0.5)
    async with running(data_dir=tmp_path) as server:
        call = stub_of(server).PutGlossary()
        await call.write(next(iter(messages([HOUSE]))))
        status, _ = await failure(call)
        assert (status.code, "next message did not arrive" in status.message) == (code_pb2.DEADLINE_EXCEEDED, True)
        assert await names(stub_of(server)) == []


async def test_a_drain_waits_for_terms_that_arrive(server: RunningServer):
    stub = stub_of(server)
    call = stub.PutGlossary()
    await call.write(next(iter(messages([HOUSE]))))
    await eventually(lambda: bool(server.server._gate._admitted.all))
    server.server.stop()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in _until_refused(stub):
            pass
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await call.done_writing()
    assert (await call).dictionaries[0].terms == 1
    assert await server.task == 0


async def _until_refused(stub: Any) -> AsyncIterator[None]:
    while True:
        await names(stub)
        yield


async def test_a_call_in_this_process_sends_a_stream_as_one_by_a_connection_does(server: RunningServer):
    local: Any = pb_grpc.GlossaryServiceStub(server.server.channel)  # type: ignore[arg-type]

    async def later() -> AsyncIterator[pb.PutGlossaryRequest]:
        for each in messages([HOUSE], [SEA]):
            yield each

    for requests in (messages([HOUSE], [SEA]), later()):
        await local.PutGlossary(requests)
        assert await read(local) == await read(stub_of(server)) == [HOUSE, SEA]
        await local.DeleteGlossary(pb.DeleteGlossaryRequest(name="legal"))
    near, far = [await failure(put(each, [HOUSE], name="?")) for each in (local, stub_of(server))]
    assert near[0] == far[0]


async def test_an_error_of_the_stream_that_a_caller_in_this_process_sends_is_raised_and_ends_the_call(
    server: RunningServer,
):
    local: Any = pb_grpc.GlossaryServiceStub(server.server.channel)  # type: ignore[arg-type]

    async def broken() -> AsyncIterator[pb.PutGlossaryRequest]:
        yield next(iter(messages([HOUSE])))
        raise LookupError("planted")

    with pytest.raises(LookupError, match="planted"):
        await local.PutGlossary(broken())
    assert await names(local) == []


async def test_a_damaged_file_is_named_in_one_line_and_can_be_removed(server: RunningServer, tmp_path: Path):
    stub = stub_of(server)
    await put(stub, [HOUSE])
    await put(stub, [SEA], name="other")
    (path,) = glossary_files(tmp_path)
    whole = path.read_bytes()
    for content in (whole[:-3], whole.replace(b"Haus", b"Maus"), b"", json.dumps({}).encode()):
        path.write_bytes(content)
        status, _ = await failure(_first(read(stub)))
        assert (status.code, "legal is damaged" in status.message) == (code_pb2.DATA_LOSS, True)
        assert await names(stub) == ["legal", "other"]
    await stub.DeleteGlossary(pb.DeleteGlossaryRequest(name="legal"))
    await put(stub, [SEA])
    assert await read(stub) == [SEA]


def glossary_files(folder: Path) -> list[Path]:
    return list(folder.glob("data/*/glossaries/legal.glossary"))


async def _first(call: Any) -> Any:
    return await call


async def test_a_translation_uses_the_glossaries_of_its_caller_from_its_begin_on(tmp_path: Path):
    one, other = new_key(), new_key()
    keys = write_key_file(tmp_path, {"one": one, "other": other})
    async with running(data_dir=tmp_path / "data", api_keys=keys) as server:
        stub = stub_of(server)
        request = translation_pb2.TranslateRequest(texts=["Tom lives in Boston."], glossaries=["names"])
        await put(stub, [Term(source="Boston", target="Boston")], key=one, name="names")
        reply = await server.stub.Translate(request, metadata=bearer(one))
        (outcome,) = reply.results[0].terms
        assert (outcome.glossary, outcome.means) == ("names", translation_pb2.TERM_MEANS_KEPT)
        await put(stub, [Term(source="Tom", target="Tom")], key=one, name="names")
        reply = await server.stub.Translate(request, metadata=bearer(one))
        assert [each.source for each in reply.results[0].terms] == ["Tom"]
        status, _ = await failure(server.stub.Translate(request, metadata=bearer(other)))
        assert (status.code, status.message) == (code_pb2.NOT_FOUND, "there is no glossary names")
