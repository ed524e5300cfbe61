"""An engine that runs the health check of the image restarts servers that hang or end, and no others.

podman stands for the orchestrator: it ends a container whose check failed three times, and starts it again. The probes
of a cluster are another program; tests/deploy checks their manifests.
"""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.support.containers import READY_SECONDS, Container, config, container
from tests.support.eventually import eventually_blocking

pytestmark = [pytest.mark.images, pytest.mark.timeout(600)]
LOAD = """
from lingon import Client
texts = [f"{number} reasons why Tom lives in Boston with his old dog." for number in range(100)]
with Client("127.0.0.1:50051") as client:
    while True:
        client.translate(texts, target="de", beam_size=8, timeout=240)
"""


def supervised(*, patient: bool = False) -> list[str]:
    """Options that restart a container by the image's own health check, without its period of a minute.

    patient: give a check 20 seconds, where one that is late only because the machine is busy would fail the test
    """
    check = config("cpu")["Healthcheck"]
    command, seconds = check["Test"], check["Timeout"] / 1e9
    if patient:
        command, seconds = [*command, "--timeout", "20"], 30.0
    return [
        "--restart=unless-stopped",
        "--health-on-failure=restart",
        f"--health-cmd={' '.join(command)}",
        f"--health-timeout={seconds:g}s",
        f"--health-retries={check['Retries']}",
        "--health-start-period=1s",
    ]


@pytest.fixture
def retries() -> int:
    """The failed checks after which a container is unhealthy."""
    count: int = config("cpu")["Healthcheck"]["Retries"]
    return count


def starts(server: Container) -> int:
    """How often a server in the container became ready."""
    return server.log().count("\nready: ")


def test_a_server_that_hangs_is_restarted_and_a_busy_one_is_not(retries):
    with container("cpu", *supervised()) as hung, container("cpu", *supervised(patient=True)) as busy:
        before = busy.process
        load = busy.outside(sys.executable, "-c", LOAD)
        try:
            os.kill(hung.server(), signal.SIGSTOP)
            assert [hung.healthy() for _ in range(retries)] == [False] * retries
            assert [busy.healthy() for _ in range(2 * retries)] == [True] * 2 * retries
            eventually_blocking(lambda: starts(hung) == 2, READY_SECONDS, pause=0.5)
            eventually_blocking(hung.healthy, READY_SECONDS, pause=1)
            assert load.poll() is None
        finally:
            load.kill()
            load.wait()
            if load.stdout is not None:
                load.stdout.close()
        assert (starts(busy), busy.process) == (1, before)


def test_a_server_that_ends_is_restarted():
    with container("cpu", *supervised()) as server:
        os.kill(server.server(), signal.SIGKILL)
        eventually_blocking(lambda: starts(server) == 2, READY_SECONDS, pause=0.5)
        assert "Boston" in server.translated("Tom lives in Boston.\n")


def test_a_check_that_fails_less_often_than_the_retries_restarts_nothing(retries):
    with container("cpu", *supervised(patient=True)) as server:
        process = server.server()
        os.kill(process, signal.SIGSTOP)
        assert [server.healthy() for _ in range(retries - 1)] == [False] * (retries - 1)
        os.kill(process, signal.SIGCONT)
        assert server.healthy()
        assert (starts(server), server.server()) == (1, process)
