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
        client.translate(texts, beam_size=8, timeout=240)
"""


def supervised() -> list[str]:
    """Options that restart a container by the image's own health check, without its period of a minute."""
    check = config("cpu")["Healthcheck"]
    seconds = check["Timeout"] / 1e9
    return [
        "--restart=unless-stopped",
        "--health-on-failure=restart",
        f"--health-cmd={' '.join(check['Test'])}",
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
    with container("cpu", *supervised()) as hung, container("cpu", *supervised()) as busy:
        before = busy.process
        load = busy.outside(sys.executable, "-c", LOAD)
        try:
            os.kill(hung.server(), signal.SIGSTOP)
            assert [hung.healthy() for _ in range(retries)] == [False] * retries
            assert any(busy.healthy() for _ in range(2 * retries))  # one may be late on a busy machine
            eventually_blocking(lambda: starts(hung) == 2, READY_SECONDS, pause=0.5)
            assert hung.healthy()
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
    with container("cpu", *supervised()) as server:
        process = server.server()
        os.kill(process, signal.SIGSTOP)
        assert [server.healthy() for _ in range(retries - 1)] == [False] * (retries - 1)
        os.kill(process, signal.SIGCONT)
        assert server.healthy()
        assert (starts(server), server.server()) == (1, process)
