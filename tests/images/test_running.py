"""The images serve as compose.yaml closes them: another user, no rights, read-only, no network, limited memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.containers import READY_SECONDS, USER, Container, container
from tests.support.eventually import eventually_blocking

pytestmark = [pytest.mark.images, pytest.mark.timeout(600)]
TEXT = "Tom lives in Boston.\n"
OF_THE_ENGINE = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv"}  # mounted by podman, of root
STICKY = {"/tmp", "/var/tmp", "/run/lock"}  # open to every user by their mode


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def server(request: pytest.FixtureRequest) -> Iterator[Container]:
    """A running server; the image for GPUs computes on the CPU here."""
    with container(request.param, variables={"LINGON_DEVICE": "cpu"}) as running:
        yield running


def status(process: int) -> dict[str, str]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_a_client_outside_gets_a_translation(server):
    assert "Boston" in server.translated(TEXT)


def test_its_health_check_passes(server):
    eventually_blocking(server.healthy, READY_SECONDS, pause=1)
    assert server.state()["State"]["Health"]["Status"] == "healthy"


def test_it_runs_as_another_user_without_any_right(server):
    found = status(server.server())
    assert found["Uid"].split() == [str(USER)] * 4
    assert found["Gid"].split() == [str(USER)] * 4
    assert {found[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0000000000000000"}
    assert found["NoNewPrivs"] == "1"


def test_it_can_write_to_folders_in_memory_only(server):
    """`find` and a real attempt agree: the root is read-only, and its user could not write there if it were not."""
    mounts = [line.split() for line in server.run("cat", "/proc/self/mounts").stdout.splitlines()]
    writable = {where for _, where, kind, options, *_ in mounts if "rw" in options.split(",")}
    in_memory = {where for _, where, kind, *_ in mounts if kind in ("tmpfs", "proc", "devpts", "mqueue")}
    assert writable - in_memory <= OF_THE_ENGINE
    listed = server.run("find", "/", "-xdev", "-writable", "-not", "-type", "l", check=False).stdout.splitlines()
    assert {path for path in listed if path.startswith("/") and not path.startswith("/dev/")} <= STICKY
    for folder in ("/", "/models", "/opt/lingon", "/var/tmp", "/run", "/etc"):
        assert server.run("touch", f"{folder}/probe", check=False).returncode != 0
    assert server.run("touch", "/tmp/probe", check=False).returncode == 0


def test_nothing_in_tmp_can_be_executed(server):
    script = "cp /bin/true /tmp/true && /tmp/true"
    assert "Permission denied" in server.run("sh", "-c", script, check=False).stdout


def test_it_reaches_no_network_but_its_own_loopback(server):
    code = "import socket; print(*(name for _, name in socket.if_nameindex()))"
    assert server.run("python", "-c", code).stdout.split() == ["lo"]
    dial = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    assert "Network is unreachable" in server.run("python", "-c", dial, check=False).stdout


def test_its_memory_and_processes_are_limited(server):
    limits = server.state()["HostConfig"]
    assert limits["Memory"] > 0
    assert limits["PidsLimit"] == 4096
    groups = Path(f"/proc/{server.server()}/cgroup").read_text()
    assert server.state()["Id"] in groups


ONE_REQUEST = """
from lingon import Client
texts = [f"{number} reasons why Tom lives in Boston with his old dog and two cats." for number in range(200)]
with Client("127.0.0.1:50051") as client:
    print(sum("Boston" in result.text for result in client.translate(texts, target="de", beam_size=8, timeout=240)))
"""


def in_flight(server: Container) -> float:
    """The requests in flight, as the metrics of the server say."""
    code = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464/metrics').read().decode())"
    values = re.findall(r"^lingon_requests_in_flight\S* (\S+)$", server.run("python", "-c", code).stdout, re.MULTILINE)
    return sum(map(float, values))


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_it_ends_its_calls_before_it_stops(target):
    """SIGTERM in the middle of a call: the client gets the whole answer, and the exit code is 0."""
    patient = {"LINGON_DEVICE": "cpu", "LINGON_DRAIN_SECONDS": "300"}  # the machine may be busy
    with container(target, variables=patient) as running:
        with running.outside(sys.executable, "-c", ONE_REQUEST) as client:
            eventually_blocking(lambda: in_flight(running) > 0, READY_SECONDS, pause=0.05)
            running.signal("TERM")
            assert client.stdout is not None
            assert int(client.stdout.read()) > 190  # texts; a few may be translated freely
        assert client.returncode == 0
        assert running.exit_code() == 0
        messages = running.log()
    assert '"draining"' in messages
    assert "cut off" not in messages
