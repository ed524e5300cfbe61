"""compose.yaml starts the server: published ports, settings, health check, TLS with keys and trusted bundles, stop.

podman-compose reads the files and podman runs them. Prometheus and Grafana are not started: their images are in a
registry.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingon import Client, Tls
from lingon.bundle import open_bundle, trusted_line
from lingon.errors import LingonError
from lingon.serving.auth.api_keys import append_table, key_table, new_key
from tests.support.certificates import Authority
from tests.support.containers import READY_SECONDS, Container, compose
from tests.support.eventually import eventually_blocking
from tests.support.pages import free_ports
from tests.support.repository import ROOT

pytestmark = [pytest.mark.images, pytest.mark.timeout(600)]
NAME = "lingon_lingon-cpu_1"
SECURE = ("compose.yaml", "compose.secure.yaml")


@pytest.fixture
def ports() -> dict[str, str]:
    """Free ports of this machine, as the variables of compose.yaml."""
    return dict(zip(("GRPC_PORT", "METRICS_PORT"), map(str, free_ports(2)), strict=True))


@pytest.fixture
def started(ports: dict[str, str]) -> Iterator[Container]:
    compose("up", "--detach", "lingon-cpu", **ports)
    server = Container(NAME)
    try:
        eventually_blocking(server.ready, READY_SECONDS, pause=0.2)
        yield server
    finally:
        compose("down", **ports)


def test_the_stack_serves_on_this_machine_and_stops_without_an_error(started: Container, ports: dict[str, str]):
    with Client(f"127.0.0.1:{ports['GRPC_PORT']}") as client:
        assert "Boston" in client.translate("Tom lives in Boston.", target="de").text
    eventually_blocking(started.healthy, READY_SECONDS, pause=1)
    state = started.state()
    assert state["HostConfig"]["ReadonlyRootfs"]
    assert state["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert state["EffectiveCaps"] in (None, [])
    assert {port["HostIp"] for each in state["NetworkSettings"]["Ports"].values() for port in each} == {"127.0.0.1"}
    compose("stop", "lingon-cpu", **ports)
    assert started.state()["State"]["ExitCode"] == 0


def test_the_secure_stack_asks_for_a_certificate_and_a_key(tmp_path: Path, ports: dict[str, str]):
    authority, key = Authority(), new_key()
    pair, client_pair = authority.sign(names=("localhost",)), authority.sign("shop")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    pair.write(secrets)
    client_pair.write(tmp_path, "client")
    (secrets / "ca.crt").write_bytes(authority.pem)
    append_table(secrets / "keys.toml", key_table("shop", key))
    lines = [trusted_line(open_bundle(path)) for path in sorted((ROOT / "models").iterdir())]
    (secrets / "trusted.sha256").write_text("".join(f"{line}\n" for line in lines))
    subprocess.run(["chmod", "-R", "a+rX", tmp_path, secrets], check=True)
    variables = {**ports, "SECRETS_FOLDER": str(secrets)}
    compose("up", "--detach", "lingon-cpu", files=SECURE, **variables)
    try:
        server, address = Container(NAME), f"127.0.0.1:{ports['GRPC_PORT']}"
        eventually_blocking(server.ready, READY_SECONDS, pause=0.2)
        eventually_blocking(server.healthy, READY_SECONDS, pause=1)
        tls = Tls(
            ca=secrets / "ca.crt",
            certificate=tmp_path / "client.crt",
            key=tmp_path / "client.key",
        )
        with Client(address, tls=tls, api_key=key) as client:
            assert "Boston" in client.translate("Tom lives in Boston.", target="de").text
        with Client(address, tls=tls, api_key=new_key()) as client, pytest.raises(LingonError, match="not known"):
            client.translate("Tom lives in Boston.", target="de")
        (secrets / "trusted.sha256").write_text("")
        compose("restart", "lingon-cpu", files=SECURE, **variables)
        eventually_blocking(
            lambda: "is not trusted: /run/lingon/trusted.sha256" in server.log(), READY_SECONDS, pause=0.5
        )
    finally:
        compose("down", files=SECURE, **variables)
