"""A server under test is a real process, observed from outside, and never outlives its test."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.callers.clients import Client
from chaos.callers.crashing_clients import CrashingClient
from chaos.cpu_pinning import CpuPinning
from chaos.server import Server, ends_with_parent
from chaos.verdict.history import History
from lingon.errors import LingonError
from tests.support.repository import ROOT

EN_DE = ROOT / "models" / "en-de"
PARENT = """
import subprocess, sys
from chaos.server import ends_with_parent
child = subprocess.Popen(ends_with_parent(["sleep", "600"]), start_new_session=True)
sys.stdout.write(f"{child.pid}\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def started(folder: Path, **settings: object) -> Server:
    return Server(folder=folder, model=EN_DE, cores=CpuPinning.choose().server, settings=settings)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


async def test_a_server_starts_answers_and_ends(tmp_path):
    async with started(tmp_path, log_level="debug") as server:
        client = Client(server.address, History(), "some")
        outcome = await client.translate("Tom lives in Boston.")
        scrape = await server.scrape()
        assert [(call.request_id, call.method, call.code) for call in server.calls()] == [
            (outcome.id, "Translate", "OK")
        ]
        assert scrape.sum("lingon_requests_total") == 1
        assert (await server.get("/healthz"))[0] == 200
        assert (await client.health(), server.exit_code, server.family()) == ("SERVING", None, [])
        assert server.rss() > 10
        assert server.threads() > 1
        assert server.fds() > 3
        await client.close()
        signalled = server.signal(signal.SIGTERM)
        assert await server.exited(20) > signalled
        assert (server.exit_code, server.tracebacks()) == (0, [])


async def test_a_server_does_not_outlive_its_context(tmp_path):
    with pytest.raises(RuntimeError, match="inside the block"):
        async with started(tmp_path) as server:
            raise RuntimeError("inside the block")
    assert not alive(server.pid)


async def test_a_server_that_does_not_start_is_reported_in_one_line(tmp_path):
    with pytest.raises(LingonError, match=r"ended with exit code 2 before it was ready: .*step=explode is none of"):
        async with started(tmp_path, failpoints="step=explode"):
            pass


@pytest.mark.parametrize("running", [False, True], ids=["at once", "when it runs"])
def test_a_child_process_ends_with_its_parent(running):
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        while running and not Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"sleep"):
            pass
        watch = os.pidfd_open(child)
        parent.kill()
        parent.wait()
    assert select.select([watch], [], [], 10)[0]
    os.close(watch)


async def test_the_requests_of_a_crashing_client_are_recorded(tmp_path):
    async with started(tmp_path, failpoints="step=sleep:0.2") as server:
        crashing = CrashingClient(server.address, ["Tom lives in Boston."], 3, tmp_path, CpuPinning.choose().clients)
        outcomes = crashing.kill()
    assert [(outcome.method, outcome.code) for outcome in outcomes] == [("TranslateStream", "KILLED")] * 3
    assert len({outcome.id for outcome in outcomes}) == 3


def test_the_arguments_of_a_command_are_kept():
    answer = subprocess.run(ends_with_parent(["echo", "a b"]), capture_output=True, text=True, check=True)
    assert answer.stdout == "a b\n"
