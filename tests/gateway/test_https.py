"""The HTTP port with a certificate: HTTPS, a new certificate without a restart, and no client certificates."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import SettingsError
from lingon.gateway import server as server_module
from lingon.serving.setting_sources import load
from tests.support.certificates import Authority, Pair
from tests.support.gateway import Gateway, gateway

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


def der(pair: Pair) -> bytes:
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

        for _ in range(100):
            if await renewed():
                break
            await asyncio.sleep(0.05)
        assert await renewed()


def test_http_callers_have_no_client_certificates(tmp_path: Path):
    flags = {name: str(path) for name, path in OURS.sign().write(tmp_path).items()}
    (tmp_path / "ca.crt").write_bytes(OURS.pem)
    with pytest.raises(SettingsError, match="http_port and tls_client_ca exclude each other"):
        load({"http_port": 0, "tls_client_ca": str(tmp_path / "ca.crt"), **flags}, {}, None)
