"""The HTTP port as it is run: by `lingon gateway` in front of a server, with HTTPS, and until it stops."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import SettingsError
from lingon.gateway import server as server_module
from lingon.serving.settings import load
from tests.support.credentials import Authority, CertificatePair
from tests.support.echo_engine import EchoRunner
from tests.support.gateway import Gateway, gateway
from tests.support.processes import ENVIRONMENT, lingon, serving
from tests.support.repository import ROOT
from tests.support.timing import eventually


def test_a_gateway_serves_in_front_of_a_server_and_ends_with_0():
    with serving(ROOT / "models" / "en-de") as server:
        command = [
            sys.executable,
            "-m",
            "lingon",
            "gateway",
            "--server",
            server.address,
            "--port",
            "0",
            "--apis",
            "lingon",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
            assert process.stdout is not None
            url = process.stdout.readline().partition(" on ")[2].partition(",")[0]
            request = urllib.request.Request(
                f"{url}/v1/translate", b'{"texts": ["It is raining."]}', {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=20) as reply:
                found = json.load(reply)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
    assert found["results"][0]["hypotheses"][0]["text"] == "Es regnet."


def test_a_gateway_keeps_glossaries_and_memories_in_the_server_behind_it(tmp_path: Path):
    import deepl

    (tmp_path / "a.tmx").write_text(
        '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>It is raining.</seg></tuv>'
        '<tuv xml:lang="de"><seg>Regen!</seg></tuv></tu></body></tmx>'
    )
    with serving(ROOT / "models" / "en-de", "--data-dir", tmp_path / "kept") as server:
        command = [sys.executable, "-m", "lingon", "gateway", "--server", server.address, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
            assert process.stdout is not None
            url = process.stdout.readline().partition(" on ")[2].partition(",")[0]
            client = deepl.DeepLClient("key", server_url=url)
            try:
                glossary = client.create_glossary("Mine", "EN", "DE", {"cup": "Schale"})
                languages = {"source_lang": "EN", "target_lang": "DE"}
                with_term = client.translate_text("I would like a cup of tea.", **languages, glossary=glossary).text
                entries = client.get_glossary_entries(glossary)
                job = client.import_translation_memory_from_filepath(tmp_path / "a.tmx")
                memory = client.get_translation_memory(job.result.translation_memory_id)
                remembered = client.translate_text("It is raining.", **languages, translation_memory=memory).text
                client.export_translation_memory_to_filepath(memory, tmp_path / "b.tmx")
            finally:
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=20) == 0
    assert (with_term, entries, remembered) == ("Ich hätte gern eine Schale Tee.", {"cup": "Schale"}, "Regen!")
    assert "<seg>Regen!</seg>" in (tmp_path / "b.tmx").read_text(encoding="utf-8")


def test_a_port_in_use_is_named_with_the_option_of_the_verb(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = lingon("gateway", "--port", str(port), code=1, folder=tmp_path)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; set --port" in message


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--apis", "lingon,bing"], 2, "no API 'bing'; the APIs are lingon, deepl, libretranslate, google, openai"),
        (["--certificate", "a.pem"], 2, "--certificate and --key go together: give both or neither"),
        (["--certificate", "a.pem", "--key", "b.pem"], 2, "a.pem: No such file or directory"),
        (
            ["--server", "192.0.2.1:50051"],
            2,
            "the API key would be sent unencrypted to 192.0.2.1:50051: turn TLS on (tls=, --tls), or allow it",
        ),
        (
            ["--cors", "example.com"],
            2,
            "an origin is written as https://example.com, without a path; got 'example.com'",
        ),
        (
            ["--trusted-proxies", "10.0.0.0/8, nginx"],
            2,
            "--trusted-proxies must be addresses, networks such as 10.0.0.0/8, or *; got 'nginx'",
        ),
        (["--data-dir", "/proc/none"], 2, "the folder for files /proc/none/documents cannot be used: "),
        (["--server", "192.0.2.1:50051", "--insecure", "--host", "192.0.2.1"], 1, "cannot listen on 192.0.2.1:8080"),
        (
            ["--host", "192.0.2.1"],
            1,
            "cannot listen on 192.0.2.1:8080: Cannot assign requested address",
        ),
    ],
)
def test_options_that_do_not_fit_are_named(tmp_path: Path, options: list[str], code: int, message: str):
    assert message in lingon("gateway", *options, code=code, folder=tmp_path)


OURS = Authority()


def ask(gate: Gateway, authority: Authority) -> tuple[Any, bytes]:
    """Translate over HTTPS; returns the reply, and the certificate of the server."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    connection = http.client.HTTPSConnection("127.0.0.1", gate.port, timeout=20, context=context)
    try:
        connection.request("POST", "/v1/translate", b'{"texts": ["Tom"]}', {"content-type": "application/json"})
        assert connection.sock is not None
        certificate = connection.sock.getpeercert(binary_form=True)
        return json.loads(connection.getresponse().read()), certificate
    finally:
        connection.close()


def der(pair: CertificatePair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())


async def test_the_certificate_of_the_server_is_that_of_the_http_port_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "FILES_SECONDS", 0.05)
    first, second = OURS.sign(), OURS.sign()
    async with gateway(**first.write(tmp_path)) as gate:
        reply, certificate = await asyncio.to_thread(ask, gate, OURS)
        assert reply["results"][0]["hypotheses"][0]["text"] == "Tom"
        assert certificate == der(first)
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(ask, gate, Authority("another"))
        for broken in (b"half", second.certificate):  # a new certificate that is being written, or comes before its key
            (tmp_path / "tls.crt").write_bytes(broken)
            await asyncio.sleep(0.2)
            assert (await asyncio.to_thread(ask, gate, OURS))[1] == der(first)
        for name, content in (("tls.key", second.key), ("tls.crt", second.certificate)):
            (tmp_path / f"{name}.new").write_bytes(content)
            os.replace(tmp_path / f"{name}.new", tmp_path / name)

        async def renewed() -> bool:
            return (await asyncio.to_thread(ask, gate, OURS))[1] == der(second)

        await eventually(renewed)


def test_http_callers_have_no_client_certificates(tmp_path: Path):
    flags = {name: str(path) for name, path in OURS.sign().write(tmp_path).items()}
    (tmp_path / "ca.crt").write_bytes(OURS.pem)
    with pytest.raises(SettingsError, match="http_port and tls_client_ca exclude each other"):
        load({"http_port": 0, "tls_client_ca": str(tmp_path / "ca.crt"), **flags}, {}, None)


async def test_a_request_that_has_not_arrived_when_the_time_to_drain_is_over_gets_503(caplog: pytest.LogCaptureFixture):
    async with gateway(drain_seconds=1) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(
            b"POST /v1/translate HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: 90\r\n\r\n{"
        )
        await writer.drain()
        await eventually(lambda: http.server.metric("lingon_http_requests_in_flight") == 1)
        http.server.server.stop()
        reply = await reader.read()
        writer.close()
    assert reply.startswith(b"HTTP/1.1 503 "), reply
    assert b"the server is shutting down; try again" in reply
    assert "Exception in ASGI application" not in caplog.text


async def test_a_server_that_drains_takes_no_more_connections_of_http():
    runner = EchoRunner()
    async with gateway(runner, drain_seconds=60) as http:
        runner.gate.clear()
        call = asyncio.create_task(http.post("/v1/translate", {"texts": ["Tom lives in Boston."]}))
        try:
            await eventually(lambda: http.server.metric("lingon_http_requests_in_flight") == 1)
            http.server.server.stop()

            async def is_refused() -> bool:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", http.port)
                except ConnectionRefusedError:
                    return True
                except ConnectionResetError:  # the port closed while this connection waited to be accepted
                    return False
                writer.close()
                return False

            await eventually(is_refused)
            assert not call.done()
        finally:
            runner.gate.set()
        assert (await call).status == 200
