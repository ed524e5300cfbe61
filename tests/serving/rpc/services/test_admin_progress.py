"""`lingon models swap` shows on a terminal what the server does; elsewhere it prints the result alone."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.eventually import eventually
from tests.support.reload_harness import AdministeredServer, running_with_admin_port

RESULT = "en-de/2: serving, en to de, fp32 on CPU, 0.0 MB, 0 requests, in place of en-de/1\n"


def read_open(terminal: int) -> Callable[[], str]:
    """A function that returns all that a terminal has shown so far."""
    shown = b""
    os.set_blocking(terminal, False)

    def read() -> str:
        nonlocal shown
        try:
            while chunk := os.read(terminal, 4096):
                shown += chunk
        except OSError:  # nothing more at the moment, or the other end was closed
            pass
        return shown.decode()

    return read


async def swap(admin: AdministeredServer, path: Path, stderr: int) -> asyncio.subprocess.Process:
    """Start the command."""
    address = f"127.0.0.1:{admin.server.server.admin_port}"
    command = [sys.executable, "-m", "lingon", "models", "swap", str(path), "--server", address]
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=stderr)


async def test_on_a_terminal_the_command_shows_the_phase_of_the_load_and_the_model_that_leaves():
    terminal, slave = pty.openpty()
    shown = read_open(terminal)
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        admin.versions.runners[1].gate.clear()
        process = await swap(admin, admin.publish(2), slave)
        os.close(slave)
        await eventually(lambda: "en-de/2: loading (checksums, " in shown())
        in_flight = admin.server.call("Tom lives in Boston.")
        await eventually(lambda: admin.server.metric("lingon_running_sentences", model="en-de", version="1"))
        admin.versions.gate.set()
        await eventually(lambda: "en-de/1: leaving, en to de, fp32 on CPU, 0.0 MB, 1 requests" in shown())
        admin.versions.runners[1].gate.set()
        await in_flight
        output, _ = await process.communicate()
    assert (process.returncode, output.decode()) == (0, RESULT)
    lines = shown().splitlines()
    assert len(lines) == len(set(lines))
    assert not any("serving" in line for line in lines)
    os.close(terminal)


async def test_without_a_terminal_the_command_prints_the_result_alone():
    async with running_with_admin_port() as admin:
        admin.versions.gate.clear()
        process = await swap(admin, admin.publish(2), asyncio.subprocess.PIPE)
        registry = admin.server.server.metrics.registry
        await eventually(lambda: registry.get_sample_value("lingon_models_to_load") == 1)
        await asyncio.sleep(0.6)  # two polls of a command with a terminal
        admin.versions.gate.set()
        output, errors = await process.communicate()
    assert (process.returncode, output.decode(), errors) == (0, RESULT, b"")
