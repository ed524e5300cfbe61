"""The gRPC service on Ray Serve answers our client as a server does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from lingon import AsyncClient, Client, Retry, ServerError, TextDelta, TextDone
from tests.support import shipped_model
from tests.support.bulk import LINES
from tests.support.ports import free_ports
from tests.support.timing import eventually_blocking

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.skipif(find_spec("ray") is None, reason="foreign: needs the extra ray, which make e2e installs"),
]

STARTED = """
import logging, sys, time, ray
from ray import serve
from ray.serve.config import gRPCOptions, HTTPOptions
from lingon.ray import app
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
adds = ["lingon.translation.v1.translation_pb2_grpc.add_TranslationServiceServicer_to_server"]
serve.start(grpc_options=gRPCOptions(port=int(sys.argv[1]), grpc_servicer_functions=adds),
    http_options=HTTPOptions(port=int(sys.argv[2])))
serve.run(app({"models": sys.argv[3], "replicas": "2"}))
print("up", flush=True)
sys.stdin.read()
serve.shutdown()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    (port, http_port), command = free_ports(2), [sys.executable, "-c", STARTED]
    command += [str(port), str(http_port), str(shipped_model.MODEL)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line == "up\n" for line in process.stdout)
        yield f"127.0.0.1:{port}"
        process.communicate(timeout=60)
    eventually_blocking(lambda: not _servers(), 20)


def _servers() -> list[str]:
    """The servers of all replicas, which bind a port that the kernel chooses."""
    pattern = f"lingon serve {shipped_model.MODEL} .*--port 0"
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout.split()


def test_every_method_answers(address: str) -> None:
    with Client(address) as client:
        assert client.translate("How are you?", beam_size=1).text == "Wie geht es dir?"
        (model,) = client.list_models()
        assert model.name == "en-de"
        assert client.score([("How are you?", "Wie geht es dir?")])[0].log_prob < 0
        assert client.detect_languages("How are you?")[0].language == "en"
        events = list(client.translate_stream("How are you?", beam_size=1))
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Wie geht es dir?"
        assert isinstance(events[-1], TextDone)


def test_errors_arrive_with_their_details(address: str) -> None:
    with Client(address, retries=0) as client:
        with pytest.raises(ServerError) as caught:
            client.translate("Hello.", model="none")
        assert (caught.value.status, caught.value.reason) == ("NOT_FOUND", "UNKNOWN_MODEL")
        with pytest.raises(ServerError) as caught:
            client.translate("Hello.", beam_size=100)
        assert (caught.value.status, caught.value.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
        assert caught.value.violations[0][0] == "options.beam_size"
        with pytest.raises(ServerError, match="beam_size must be 1 to 8") as caught:
            list(client.translate_stream("Hello.", beam_size=100))
        assert caught.value.status == "INVALID_ARGUMENT"


def test_a_deadline_ends_a_call_and_the_next_call_is_answered(address: str) -> None:
    with Client(address, retries=0) as client:
        with pytest.raises(ServerError) as caught:
            client.translate([" ".join(LINES[:30])] * 200, beam_size=8, timeout=0.3)
        assert caught.value.status == "DEADLINE_EXCEEDED"
        assert client.translate("How are you?", beam_size=1).text == "Wie geht es dir?"


def test_calls_at_once_are_each_answered_as_alone(address: str) -> None:
    async def all_of_them() -> list[str]:
        async with AsyncClient(address) as client:
            found = await asyncio.gather(*(client.translate(line, beam_size=1) for line in LINES[:60]))
            return [each.text for each in found]

    together = asyncio.run(all_of_them())
    with Client(address) as client:
        assert together == [client.translate(line, beam_size=1).text for line in LINES[:60]]


def _answered(client: Client, line: str) -> str:
    """The translation, by a second call after INTERNAL, which Ray Serve answers for a dead replica."""
    for _ in range(20):
        try:
            return client.translate(line, beam_size=1).text
        except ServerError as error:
            if error.status != "INTERNAL":
                raise
    raise AssertionError("20 calls failed")


def test_after_the_kill_of_a_replica_under_load_a_second_call_is_answered(address: str) -> None:
    with Client(address, retries=Retry(retries=20, wait_when_away=True), timeout=100) as client:
        expected = [result.text for result in client.translate(LINES[:100], beam_size=1)]
        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(_answered, client, line) for line in LINES[:100]]
            subprocess.run("kill -9 $(pgrep -f ServeReplica | head -1)", shell=True, check=True)  # noqa: S602
            assert [each.result() for each in running] == expected
