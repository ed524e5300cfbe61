"""The HTTP port for operators answers even if other clients misuse it."""

from __future__ import annotations

import errno
import http.client
import itertools
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics import exposition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from lingon.errors import LingonError
from lingon.serving.observability.http import HttpEndpoint, MetricsPage
from lingon.serving.observability.metrics import Metrics
from tests.support.timing import eventually_blocking

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


def ask(endpoint: HttpEndpoint, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=5)
    try:
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, {name: value for name, value in reply.getheaders() if name != "Date"}, reply.read()
    finally:
        connection.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE"])
def test_other_methods_are_not_allowed_and_the_answer_names_those_that_are(endpoint: HttpEndpoint, method: str) -> None:
    status, headers, _ = ask(endpoint, method, "/healthz")
    assert (status, headers["Allow"]) == (405, "GET, HEAD, OPTIONS")


@pytest.mark.parametrize("path", ["/healthz", "/", "*"])
@pytest.mark.parametrize(("serving", "status"), [(True, 200), (False, 503)])
def test_options_tells_the_health_as_haproxy_asks_for_it(serving: bool, status: int, path: str) -> None:
    with HttpEndpoint("127.0.0.1", 0, CollectorRegistry(), lambda: serving) as opened:
        found, headers, body = ask(opened, "OPTIONS", path)
    assert (found, headers["Allow"], body) == (status, "GET, HEAD, OPTIONS", b"")


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/nope"])
def test_no_answer_tells_the_versions_of_the_software(endpoint: HttpEndpoint, path: str) -> None:
    assert [ask(endpoint, method, path)[1]["Server"] for method in ("GET", "BREW")] == ["lingon", "lingon"]


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/nope"])
def test_head_answers_as_get_does_without_a_body(endpoint: HttpEndpoint, path: str) -> None:
    status, headers, body = ask(endpoint, "GET", path)
    assert ask(endpoint, "HEAD", path) == (status, headers, b"")
    assert headers["Content-Length"] == str(len(body))


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


PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize(
    ("accepted", "kind"),
    [
        (None, PLAIN),
        ("*/*", PLAIN),
        ("text/plain;version=0.0.4", PLAIN),
        ("application/json", PLAIN),
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",  # Prometheus since 2.5
            OPENMETRICS,
        ),
        ("text/plain;version=0.0.4, application/openmetrics-text;q=0.4", PLAIN),
        ("application/openmetrics-text;q=0, */*", PLAIN),
        ("application/openmetrics-text;q=x", PLAIN),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,*/*;q=0.1",
            PLAIN,  # Prometheus with native histograms
        ),
    ],
)
def test_a_scraper_gets_the_text_format_that_all_know_unless_it_prefers_openmetrics(
    endpoint: HttpEndpoint, accepted: str | None, kind: str
) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}/metrics")
    if accepted:
        request.add_header("Accept", accepted)
    with urllib.request.urlopen(request, timeout=5) as reply:
        text = reply.read().decode()
        assert reply.headers["Content-Type"] == kind
    parse = openmetrics_families if kind == OPENMETRICS else text_string_to_metric_families
    samples = {sample.name for family in parse(text) for sample in family.samples}
    assert "some_total" in samples


def test_all_metrics_of_a_server_are_valid_openmetrics() -> None:
    metrics = Metrics()
    metrics.model("en-de", 1).left_queue(0.1)
    text = exposition.generate_latest(metrics.registry).decode()
    names = {sample.name for family in openmetrics_families(text) for sample in family.samples}
    assert {"lingon_ready", "lingon_requests_total", "lingon_queue_duration_seconds_bucket"} <= names


def test_readers_share_a_page_that_was_rendered_after_they_asked() -> None:
    begun, go_on, pages = threading.Semaphore(0), threading.Semaphore(0), itertools.count()

    def render() -> bytes:
        begun.release()
        go_on.acquire()
        return b"%d" % next(pages)

    page = MetricsPage(render)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(page.read)
        begun.acquire()
        others = [pool.submit(page.read) for _ in range(8)]  # while the first page is rendered
        eventually_blocking(lambda: pool._work_queue.empty())
        go_on.release(10)
        assert first.result() == b"0"
        assert min(each.result() for each in others) == b"1"
    assert next(pages) < 9


@pytest.mark.parametrize(("work", "pause"), [(0.0, 0.25), (0.05, 0.45), (0.3, 1.0)])
def test_a_rendering_is_followed_by_a_pause_of_nine_times_its_work(work: float, pause: float) -> None:
    renderings: list[tuple[float, float]] = []

    def render() -> bytes:
        begin, end = time.monotonic(), time.thread_time() + work
        while time.thread_time() < end:
            pass
        renderings.append((begin, time.monotonic()))
        return b""

    page = MetricsPage(render)
    page.read()
    page.read()
    ((_, end), (begin, _)) = renderings
    assert begin - end >= pause


def test_a_rendering_that_waits_is_followed_by_no_long_pause() -> None:
    page = MetricsPage(lambda: time.sleep(0.3) or b"")  # type: ignore[func-returns-value]
    page.read()
    assert page.seconds_to_wait() <= 0.25


def test_no_reader_waits_for_the_pause_when_the_server_ends() -> None:
    ending = threading.Event()
    page = MetricsPage(lambda: b"page", ending)
    page.read()
    ending.set()
    page._pause_end += 60
    start = time.monotonic()
    assert page.read() == b"page"
    assert time.monotonic() - start < 30


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
