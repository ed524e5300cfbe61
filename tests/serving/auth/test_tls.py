"""TLS: clients that are refused and served, and files that change while the server serves."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from lingon import Client, ServerError, Tls
from lingon.admin.v1 import admin_pb2, admin_pb2_grpc
from lingon.cli.main import main
from lingon.errors import SettingsError
from lingon.serving.auth.tls import TlsFiles
from lingon.serving.settings import Settings
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.credentials import Authority, CertificatePair, client_credentials
from tests.support.echo_engine import running

OURS, THEIRS = Authority("ours"), Authority("theirs")
SERVER, CLIENT = OURS.sign(), OURS.sign("shop", addresses=())
EXPIRED = timedelta(hours=-1)
TEXT = pb.TranslateRequest(texts=["Tom"])


async def status_of(port: int, credentials: grpc.ChannelCredentials | None, host: str = "127.0.0.1") -> str:
    """Return the status of the first call on a new connection."""
    options = (("grpc.use_local_subchannel_pool", 1),)  # otherwise channels share connections
    address = f"{host}:{port}"
    channel = (
        grpc.aio.insecure_channel(address, options)
        if credentials is None
        else grpc.aio.secure_channel(address, credentials, options)
    )
    async with channel:
        try:
            await pb_grpc.TranslationServiceStub(channel).Translate(TEXT, timeout=10)
        except grpc.aio.AioRpcError as error:
            return error.code().name
    return "OK"


def mutual(folder: Path, server: CertificatePair = SERVER, authority: Authority = OURS) -> dict[str, Path]:
    """Write the files of a server that requires client certificates; returns its settings."""
    (folder / "ca.crt").write_bytes(authority.pem)
    return {**server.write(folder), "tls_client_ca": folder / "ca.crt"}


UNTRUSTED_CLIENTS: dict[str, tuple[CertificatePair, grpc.ChannelCredentials | None]] = {
    "no TLS": (SERVER, None),
    "the client trusts another authority": (SERVER, client_credentials(THEIRS, CLIENT)),
    "the certificate of the server expired": (OURS.sign(lasts=EXPIRED), client_credentials(OURS, CLIENT)),
    "the server has another name": (
        OURS.sign(names=("other.example",), addresses=("10.0.0.1",)),
        client_credentials(OURS, CLIENT),
    ),
    "no client certificate": (SERVER, client_credentials(OURS)),
    "a client certificate of another authority": (SERVER, client_credentials(OURS, THEIRS.sign("shop"))),
    "an expired client certificate": (SERVER, client_credentials(OURS, OURS.sign("shop", lasts=EXPIRED))),
}


@pytest.mark.parametrize("client", UNTRUSTED_CLIENTS)
async def test_an_untrusted_client_is_refused(client: str, tmp_path: Path):
    server_pair, credentials = UNTRUSTED_CLIENTS[client]
    async with running(**mutual(tmp_path, server_pair)) as server:
        assert await status_of(server.server.port, credentials) == "UNAVAILABLE"
        assert server.metric("lingon_requests_total", method="Translate", code="OK") == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_client_with_a_trusted_certificate_is_served(host: str, tmp_path: Path):
    async with running(**mutual(tmp_path)) as server:
        assert await status_of(server.server.port, client_credentials(OURS, CLIENT), host) == "OK"


async def test_without_a_client_ca_no_client_certificate_is_required(tmp_path: Path):
    async with running(**SERVER.write(tmp_path)) as server:
        assert await status_of(server.server.port, client_credentials(OURS)) == "OK"
        assert await status_of(server.server.port, None) == "UNAVAILABLE"


def handshake(port: int, version: ssl.TLSVersion) -> tuple[str | None, int]:
    """Return the negotiated version and the serial number of the server's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=(OURS.pem + THEIRS.pem).decode())
    context.set_ciphers("DEFAULT@SECLEVEL=0")  # otherwise OpenSSL itself refuses old versions
    context.set_alpn_protocols(["h2"])
    context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
        assert certificate
        return secured.version(), x509.load_der_x509_certificate(certificate).serial_number


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")  # old versions are tested on purpose
async def test_tls_older_than_1_2_is_refused(tmp_path: Path):
    async with running(**SERVER.write(tmp_path)) as server:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            agreed, _ = await asyncio.to_thread(handshake, server.server.port, version)
            assert agreed == version.name.replace("_", ".")
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with pytest.raises(ssl.SSLError, match=r"EOF occurred|PROTOCOL_VERSION"):  # by the server
                await asyncio.to_thread(handshake, server.server.port, version)


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically, as deployment tools do."""
    part = path.with_suffix(".new")
    part.write_bytes(content)
    os.replace(part, path)


async def test_a_new_certificate_applies_to_new_connections_without_losing_a_request(tmp_path: Path):
    files = SERVER.write(tmp_path)
    roots = grpc.ssl_channel_credentials(OURS.pem + THEIRS.pem)
    ends: list[str] = []
    rotated = asyncio.Event()

    async def keep_asking(port: int) -> None:
        after = 0
        while after < 5:
            ends.append(await status_of(port, roots))
            after += rotated.is_set()

    async with running(**files) as server:
        port = server.server.port
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", roots) as channel:
            stub: Any = pb_grpc.TranslationServiceStub(channel)
            await stub.Translate(TEXT)
            asking = [asyncio.create_task(keep_asking(port)) for _ in range(4)]
            for pair in [THEIRS.sign(), OURS.sign(), THEIRS.sign()]:
                replace(files["tls_certificate"], pair.certificate)
                target = len(ends) + 8
                while len(ends) < target:  # noqa: ASYNC110  # certificate and key do not match meanwhile
                    await asyncio.sleep(0.01)
                replace(files["tls_key"], pair.key)
                assert (await asyncio.to_thread(handshake, port, ssl.TLSVersion.TLSv1_3))[1] == pair.serial
                await stub.Translate(TEXT)  # on the connection of the first certificate
            rotated.set()
            await asyncio.gather(*asking)
    assert set(ends) == {"OK"}
    assert len(ends) > 40


async def test_a_removed_authority_is_refused_on_new_connections(tmp_path: Path):
    files = mutual(tmp_path)
    old, new = client_credentials(OURS, CLIENT), client_credentials(OURS, THEIRS.sign("shop"))
    async with running(**files) as server:
        port = server.server.port
        assert [await status_of(port, old), await status_of(port, new)] == ["OK", "UNAVAILABLE"]
        replace(files["tls_client_ca"], OURS.pem + THEIRS.pem)
        assert [await status_of(port, old), await status_of(port, new)] == ["OK", "OK"]
        replace(files["tls_client_ca"], THEIRS.pem)
        assert [await status_of(port, old), await status_of(port, new)] == ["UNAVAILABLE", "OK"]


HALF = SERVER.certificate[: len(SERVER.certificate) // 2]
ENCRYPTED = OURS.sign(passphrase=b"secret")
EDWARDS = OURS.sign(key=ed25519.Ed25519PrivateKey.generate())
BAD: dict[str, tuple[str, bytes | None, str]] = {
    "missing": ("tls_certificate", None, "No such file or directory"),
    "empty": ("tls_certificate", b"", "has no certificate in PEM"),
    "half written": ("tls_certificate", HALF, "a certificate is cut off"),
    "half of a chain written": ("tls_certificate", SERVER.certificate + HALF, "a certificate is cut off"),
    "not a certificate": (
        "tls_certificate",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "cannot be read",
    ),
    "of another key": ("tls_certificate", OURS.sign().certificate, "is not the key of"),
    "no key": ("tls_key", b"", "has no private key in PEM"),
    "half a key": ("tls_key", SERVER.key[:100], "cannot be read"),
    "an encrypted key": ("tls_key", ENCRYPTED.key, "is encrypted"),
    "no authority": ("tls_client_ca", b"", "has no certificate in PEM"),
    "half an authority": ("tls_client_ca", OURS.pem + HALF, "a certificate is cut off"),
    "bad base64": ("tls_client_ca", OURS.pem.replace(b"\nMII", b"\n!!!"), "cannot be read as certificates"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_at_the_start_is_one_line_that_names_it(kind: str, tmp_path: Path):
    name, content, why = BAD[kind]
    files = mutual(tmp_path)
    files[name].unlink()
    if content is not None:
        files[name].write_bytes(content)
    with pytest.raises(SettingsError, match=why) as raised:
        TlsFiles(Settings.model_validate(files))
    assert str(files[name]) in str(raised.value)
    assert "PRIVATE" not in str(raised.value)


def test_key_types_that_grpc_does_not_support_are_refused_at_the_start(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"tls\.crt: gRPC does not support Ed25519 and Ed448"):
        TlsFiles(Settings.model_validate(EDWARDS.write(tmp_path)))
    for curve in (ec.SECP521R1(), ec.SECP256K1(), ec.SECP224R1(), ec.BrainpoolP256R1()):
        with pytest.raises(SettingsError, match=r"tls\.crt: gRPC clients support only the curves P-256 and P-384"):
            TlsFiles(Settings.model_validate(OURS.sign(key=ec.generate_private_key(curve)).write(tmp_path)))


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65_537, 2048)])
async def test_other_keys_are_served(key: Any, tmp_path: Path):
    async with running(**OURS.sign(key=key).write(tmp_path)) as server:
        assert await status_of(server.server.port, client_credentials(OURS)) == "OK"


async def test_a_server_with_a_bad_file_does_not_start(tmp_path: Path):
    files = SERVER.write(tmp_path)
    files["tls_key"].write_bytes(HALF)
    with pytest.raises(SettingsError, match=re.escape(str(files["tls_key"]))):
        async with running(**files):
            pass


@pytest.mark.parametrize("kind", BAD)
async def test_an_invalid_file_later_changes_nothing_and_is_logged_once(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    name, content, why = BAD[kind]
    files, good = mutual(tmp_path), client_credentials(OURS, CLIENT)
    async with running(**files) as server:
        before = files[name].read_bytes()
        if content is None:
            files[name].unlink()
        else:
            files[name].write_bytes(content)
        assert [await status_of(server.server.port, good) for _ in range(3)] == ["OK"] * 3
        logged = [record.fields["why"] for record in caplog.records if record.levelno == logging.ERROR]  # type: ignore[attr-defined]
        assert len(logged) == 1
        assert re.search(why, logged[0])
        assert str(files[name]) in logged[0]
        files[name].write_bytes(before)
        assert await status_of(server.server.port, good) == "OK"


async def test_the_clients_use_tls_and_send_their_certificate(tmp_path: Path):
    async with running(**mutual(tmp_path)) as server:
        certificate = CLIENT.write(tmp_path, "client")
        tls = Tls(ca=tmp_path / "ca.crt", certificate=certificate["tls_certificate"], key=certificate["tls_key"])

        def translate(target: str, tls: Tls) -> str:
            with Client(target, tls=tls, retries=0) as client:
                return client.translate("Tom").text

        assert await asyncio.to_thread(translate, f"127.0.0.1:{server.server.port}", tls) == "Tom"
        with pytest.raises(ServerError):
            await asyncio.to_thread(translate, f"127.0.0.1:{server.server.port}", Tls(ca=tmp_path / "ca.crt"))


async def test_healthcheck_reaches_a_server_with_tls(tmp_path: Path, capfd: Any, monkeypatch: Any):
    async with running(**mutual(tmp_path, OURS.sign(names=("translate.example",), addresses=()))) as server:
        certificate = CLIENT.write(tmp_path, "client")
        flags = {
            "--tls-ca": str(tmp_path / "ca.crt"),
            "--tls-client-certificate": str(certificate["tls_certificate"]),
            "--tls-client-key": str(certificate["tls_key"]),
            "--tls-server-name": "translate.example",
        }
        command = ["healthcheck", "--server", f"127.0.0.1:{server.server.port}", "--timeout", "10"]
        assert await asyncio.to_thread(main, [*command, *(part for flag in flags.items() for part in flag)]) == 0
        assert await asyncio.to_thread(main, command) == 1
        for flag, value in flags.items():
            monkeypatch.setenv("LINGON_" + flag[2:].upper().replace("-", "_"), value)
        assert await asyncio.to_thread(main, command) == 0
        monkeypatch.setenv("LINGON_TLS_CLIENT_KEY", str(tmp_path / "ca.crt"))
        assert await asyncio.to_thread(main, command) == 2
    *_, last = capfd.readouterr().err.splitlines()
    assert last == f"lingon: error: {tmp_path / 'ca.crt'}: has no private key in PEM"


async def test_the_admin_port_uses_tls_too(tmp_path: Path):
    async with running(**mutual(tmp_path), admin_port=0) as server:
        address = f"127.0.0.1:{server.server.admin_port}"
        request = admin_pb2.ListModelsRequest()
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await admin_pb2_grpc.ModelServiceStub(channel).ListModels(request, timeout=10)
        async with grpc.aio.secure_channel(address, client_credentials(OURS, CLIENT)) as channel:
            stub: Any = admin_pb2_grpc.ModelServiceStub(channel)
            assert [model.name for model in (await stub.ListModels(request, timeout=10)).models] == ["en-de"]
