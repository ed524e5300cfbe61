"""Invalid bundles: a load, swap or start refuses them, names the reason and changes nothing."""

from __future__ import annotations

import asyncio
import logging
import weakref
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import InvalidRequest
from lingon.serving.models.reload import open_below
from lingon.serving.observability.logs import ConsoleFormatter
from tests.support.echo_engine import SERVING, EchoRunner
from tests.support.http2 import get
from tests.support.reload_harness import (
    TEXT,
    AdministeredServer,
    ReversingRunner,
    expected,
    gauges,
    refused,
    running_with_admin_port,
)
from tests.support.timing import eventually


def test_a_version_beside_the_one_of_the_start_is_refused_with_the_folder_to_start_with(tmp_path: Path):
    root, beside = tmp_path / "en-de" / "2", tmp_path / "en-de" / "3"
    for folder in (root, beside, tmp_path / "other" / "3"):
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
    with pytest.raises(InvalidRequest, match=f"; start the server with {tmp_path / 'en-de'} to change its versions$"):
        open_below(str(beside), [root])
    with pytest.raises(InvalidRequest) as caught:
        open_below(str(tmp_path / "other" / "3"), [root])
    assert "start the server" not in str(caught.value)


async def test_a_refused_model_leaves_no_threads_and_no_memory():
    made: list[weakref.ref[EchoRunner]] = []

    def noted(runner: EchoRunner) -> EchoRunner:
        made.append(weakref.ref(runner))
        return runner

    async with running_with_admin_port() as admin:
        admin.versions.broken = {2: lambda: noted(_dead()), 4: lambda: noted(ReversingRunner())}
        for version, golden in ((2, None), (4, "something else")):
            assert (await refused(admin.swap(admin.publish(version, golden))))[0] == "FAILED_PRECONDITION"
        await eventually(lambda: [runner() for runner in made] == [None, None])
        await eventually(lambda: len(admin.threads()) == 1)


def _dead() -> EchoRunner:
    """A runner that fails when it is warmed up."""
    return EchoRunner(dies_at=1)


def _out_of_memory() -> EchoRunner:
    raise MemoryError("canary text in a message")


def _altered(admin: AdministeredServer) -> Path:
    path = admin.publish(2)
    (path / "tokenizer.model").write_bytes((path / "tokenizer.model").read_bytes()[:-1] + b"x")
    return path


def _without_a_file(admin: AdministeredServer) -> Path:
    path = admin.publish(2)
    (path / "tokenizer.model").unlink()
    return path


def _with_an_extra_file(admin: AdministeredServer) -> Path:
    path = admin.publish(2)
    (path / "extra").write_bytes(b"")
    return path


def _with_invalid_manifest(admin: AdministeredServer) -> Path:
    path = admin.publish(2)
    (path / "manifest.json").write_bytes(b"{")
    return path


def _broken(admin: AdministeredServer, how: Any) -> Path:
    admin.versions.broken[2] = how
    return admin.publish(2)


BAD = {
    "nothing there": (lambda admin: admin.server.folder / "en-de" / "9", "NOT_FOUND", "no bundle"),
    "altered": (_altered, "FAILED_PRECONDITION", "tokenizer.model: was altered"),
    "a file missing": (_without_a_file, "FAILED_PRECONDITION", "tokenizer.model: No such file"),
    "a file too many": (_with_an_extra_file, "FAILED_PRECONDITION", "extra: the manifest does not list it"),
    "no manifest": (_with_invalid_manifest, "FAILED_PRECONDITION", "manifest.json"),
    "dies when warmed up": (lambda admin: _broken(admin, _dead), "FAILED_PRECONDITION", "(RuntimeError)"),
    "too large": (lambda admin: _broken(admin, _out_of_memory), "FAILED_PRECONDITION", "(MemoryError)"),
    "fails golden sentences": (
        lambda admin: admin.publish(2, golden="Tom lebt in Boston."),
        "FAILED_PRECONDITION",
        "golden.json: sentence 1 of 1 is translated otherwise than at the export",
    ),
    "dies of golden sentences": (
        lambda admin: (admin.publish(2, golden=expected(TEXT, 2)), _broken_at_step(admin, 10))[0],
        "FAILED_PRECONDITION",
        "golden.json: the sentences cannot be translated in fp32",
    ),
    "other languages": (
        lambda admin: admin.publish(2, target_language="fr"),
        "FAILED_PRECONDITION",
        "en-de/2 (en to fr) does not translate de, en-de/1 (en to de) does",
    ),
    "served already": (
        lambda admin: admin.server.folder / "en-de" / "1",
        "FAILED_PRECONDITION",
        "en-de/1 is served already",
    ),
    "no such name": (
        lambda admin: admin.publish(2, name="en-fr"),
        "FAILED_PRECONDITION",
        "no version of en-fr is served that en-fr/2 could replace",
    ),
}


def _broken_at_step(admin: AdministeredServer, step: int) -> None:
    admin.versions.broken[2] = lambda: ReversingRunner(dies_at=step)


@pytest.mark.parametrize("case", BAD)
async def test_a_failed_swap_changes_nothing_and_names_the_reason(case: str, caplog: pytest.LogCaptureFixture):
    make, code, message = BAD[case]
    async with running_with_admin_port() as admin:
        path = make(admin)
        _, before = await asyncio.to_thread(get, admin.server.server.metrics_port, "/metrics")
        with caplog.at_level(logging.INFO):
            status, details = await refused(admin.swap(path))
        assert (status, message in details, "canary" in details) == (code, True, False), details
        assert [await admin.version() for _ in range(3)] == ["1"] * 3
        assert await admin.models() == [("en-de", "1", "SERVING")]
        assert [admin.changes(outcome) for outcome in ("loaded", "unloaded", "refused")] == [0, 0, 1]
        assert await admin.server.health("model/en-de") == SERVING
        _, after = await asyncio.to_thread(get, admin.server.server.metrics_port, "/metrics")
        assert gauges(after) == gauges(before)
        admin.versions.broken.clear()
        assert (await admin.swap(admin.publish(6))).model.version == "6"  # a valid bundle is still accepted
    assert [record.message for record in caplog.records].count("a model change was refused") == 1
    assert "canary" not in "".join(map(ConsoleFormatter().format, caplog.records))


async def test_golden_sentences_pass_and_are_not_counted_in_metrics():
    async with running_with_admin_port() as admin:
        assert (await admin.swap(admin.publish(2, golden=expected(TEXT, 2)))).model.version == "2"
        assert admin.server.metric("lingon_sentences_total", model="en-de", version="2", outcome="OK") == 0


async def test_a_server_does_not_start_with_a_bundle_that_fails_its_golden_sentences(tmp_path: Path):
    async with running_with_admin_port() as admin:
        path = admin.publish(3, golden="something else")
        with pytest.raises(Exception, match=r"golden\.json: sentence 1 of 1 is translated otherwise"):
            async with running_with_admin_port(models=(path,)):
                pass
