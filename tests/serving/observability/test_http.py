"""The HTTP port for operators answers even if other clients misuse it."""

from __future__ import annotations

import errno
import http.client
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from lingon.errors import LingonError
from lingon.serving.observability.http import HttpEndpoint

MAX_CONNECTIONS = 128


@pytest.fixture
def endpoint() -> Iterator[HttpEndpoint]:
    registry = CollectorRegistry()
    Counter("some", "Something.", registry=registry)
    with HttpEndpoint("127.0.0.1", 0, registry, lambda: True) as opened:
        yield opened


def is_well(endpoint: HttpEndpoint) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/healthz", timeout=5) as reply:
        return bool(reply.read() == b"SERVING\n")


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/nope"])
def test_head_answers_as_get_does_without_a_body(endpoint: HttpEndpoint, path: str) -> None:
    found = {}
    for method in ("GET", "HEAD"):
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=5)
        connection.request(method, path)
        reply = connection.getresponse()
        headers = {name: value for name, value in reply.getheaders() if name != "Date"}
        found[method] = reply.status, headers, len(reply.read())
        connection.close()
    assert found["HEAD"] == (*found["GET"][:2], 0)
    assert found["GET"][1]["Content-Length"] == str(found["GET"][2])


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(("host", "callers"), [("::1", ["[::1]"]), ("::", ["[::1]", "127.0.0.1"])])
def test_the_port_listens_on_an_ipv6_address(host: str, callers: list[str]) -> None:
    with HttpEndpoint(host, 0, CollectorRegistry(), lambda: True) as opened:
        for caller in callers:
            with urllib.request.urlopen(f"http://{caller}:{opened.port}/healthz", timeout=5) as reply:
                assert reply.read() == b"SERVING\n"


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "no.such.host.invalid"])
def test_an_address_that_cannot_be_bound_names_the_flag_of_the_host(host: str) -> None:
    with pytest.raises(LingonError, match=r"^metrics port .*; set --metrics-host$"):
        HttpEndpoint(host, 0, CollectorRegistry(), lambda: True)


def test_a_port_that_is_taken_names_its_flag(endpoint: HttpEndpoint) -> None:
    with pytest.raises(LingonError, match=rf"^metrics port 127.0.0.1:{endpoint.port}: .*; set --metrics-port$"):
        HttpEndpoint("127.0.0.1", endpoint.port, CollectorRegistry(), lambda: True)


ACCEPTED = [
    None,
    "*/*",
    "text/plain;version=0.0.4",
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,*/*;q=0.1",
    "application/json",
]
"""What scrapers accept; the second to last are Prometheus since 2.5 and with native histograms."""


@pytest.mark.parametrize("accepted", ACCEPTED)
def test_a_scraper_gets_the_text_format_that_all_know_whatever_it_prefers(
    endpoint: HttpEndpoint, accepted: Any
) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}/metrics")
    if accepted:
        request.add_header("Accept", accepted)
    with urllib.request.urlopen(request, timeout=5) as reply:
        text = reply.read().decode()
        assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    assert "some_total" in samples


def test_connections_that_send_no_request_block_no_other(endpoint: HttpEndpoint) -> None:
    with ExitStack() as idle:
        for _ in range(MAX_CONNECTIONS + 20):
            connection = idle.enter_context(socket.create_connection(("127.0.0.1", endpoint.port), timeout=5))
            connection.sendall(b"G")
        assert is_well(endpoint)


def test_without_file_descriptors_connections_wait(endpoint: HttpEndpoint, monkeypatch: Any) -> None:
    accept, tries = socket.socket.accept, list[float]()

    def accept_nothing(listening: socket.socket) -> Any:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "accept", accept_nothing)
        with socket.create_connection(("127.0.0.1", endpoint.port), timeout=5):
            while len(tries) < 5:
                time.sleep(0.01)
    assert socket.socket.accept is accept
    assert tries[4] - tries[0] > 0.3
    assert is_well(endpoint)


FILES = """
import resource
from lingon.serving.rpc.ports import allow_many_files

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
allow_many_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_of_open_files_is_raised_to_the_hard_limit() -> None:
    done = subprocess.run([sys.executable, "-c", FILES], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "(512, 512)\n"


def test_connections_that_got_no_thread_occupy_no_slots(endpoint: HttpEndpoint, monkeypatch: Any) -> None:
    start, failed = threading.Thread.start, threading.Semaphore(0)

    def start_nothing(thread: threading.Thread) -> None:
        if "process_request_thread" in thread.name:
            failed.release()
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_nothing)
        for _ in range(MAX_CONNECTIONS + 20):
            with socket.create_connection(("127.0.0.1", endpoint.port), timeout=5):
                assert failed.acquire(timeout=5)
    assert is_well(endpoint)
