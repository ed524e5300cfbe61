"""Client certificates: which names are admitted, and which key belongs to which certificate."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from lingon.admin.v1 import admin_pb2, admin_pb2_grpc
from lingon.errors import SettingsError
from lingon.pem import certificate_ids, revocation_lists
from lingon.serving.auth.api_keys import ApiKeyFile, new_key, parse
from lingon.serving.auth.callers import admits
from lingon.serving.auth.cli import new
from lingon.serving.settings import load
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.credentials import Authority, CertificatePair, bearer, client_credentials, write_key_file
from tests.support.echo_engine import RunningServer, running
from tests.support.timing import eventually

OURS = Authority("ours")
SHOP, OPS = new_key(), new_key()
LIST = ssl.PEM_cert_to_DER_cert(OURS.revoke(OURS.sign()).decode().replace("X509 CRL", "CERTIFICATE"))  # a list in DER
TOM = pb.TranslateRequest(texts=["Tom"])


@asynccontextmanager
async def mutual(folder: Path, **settings: Any) -> AsyncIterator[RunningServer]:
    """A server that asks for a certificate of our authority."""
    (folder / "ca.crt").write_bytes(OURS.pem)
    async with running(**OURS.sign().write(folder), tls_client_ca=folder / "ca.crt", **settings) as server:
        yield server


@asynccontextmanager
async def channel_with(port: int, certificate: CertificatePair) -> AsyncIterator[grpc.aio.Channel]:
    options = (("grpc.use_local_subchannel_pool", 1),)  # otherwise channels share connections
    credentials = client_credentials(OURS, certificate)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        yield channel


async def end_of(port: int, certificate: CertificatePair, key: str | None = None, method: str = "") -> tuple[str, str]:
    """The code and the message of a call on a new connection."""
    path = method or "/lingon.translation.v1.TranslationService/Translate"
    metadata = bearer(key) if key else ()
    async with channel_with(port, certificate) as channel:
        try:
            await channel.unary_unary(path)(
                TOM.SerializeToString() if not method else b"", metadata=metadata, timeout=10
            )
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""
    return "OK", ""


def named(common_name: str, *names: str) -> CertificatePair:
    return OURS.sign(common_name, names=names, addresses=())


@pytest.mark.parametrize(
    ("pattern", "name", "admitted"),
    [
        ("shop", "shop", True),
        ("shop", "shops", False),
        ("shop", "Shop", False),
        ("*.example", "shop.example", True),
        ("*.example", "a.shop.example", False),
        ("*.example", "example", False),
        ("*.example", ".example", False),
        ("*.example", "shopXexample", False),
        ("spiffe://here/shop", "spiffe://here/shop", True),
    ],
)
def test_a_pattern_admits_a_name_that_is_equal_or_has_one_more_label(pattern: str, name: str, admitted: bool):
    assert admits(pattern, name) is admitted


ADMITTED: list[tuple[CertificatePair, str]] = [
    (named("shop"), "OK"),
    (named("", "shop"), "OK"),
    (named("other", "a.clients.example"), "OK"),
    (named("other", "b.example", "a.clients.example"), "OK"),
    (named("other"), "PERMISSION_DENIED"),
    (named("", "b.a.clients.example"), "PERMISSION_DENIED"),
    (named(""), "PERMISSION_DENIED"),
]


async def test_only_the_listed_certificates_of_the_authority_are_admitted(tmp_path: Path):
    async with mutual(tmp_path, tls_client_names="shop, *.clients.example") as server:
        port = server.server.port
        for certificate, code in ADMITTED:
            assert (await end_of(port, certificate))[0] == code
        _, message = await end_of(port, named("other"))
        assert message == "the server does not admit the client certificate 'other'"
        assert server.runner.encoded <= 1 + 4  # that of warming up, and the admitted ones
        for method in (
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            "/lingon.translation.v1.TranslationService/ListModels",
            "/no.such.Service/Method",
        ):
            assert (await end_of(port, named("other"), method=method))[0] == "PERMISSION_DENIED", method
        assert (await end_of(port, named("other"), method="/grpc.health.v1.Health/Check"))[0] == "OK"


async def test_the_admin_port_admits_only_the_listed_certificates_too(tmp_path: Path):
    async with mutual(tmp_path, tls_client_names="ops", admin_port=0) as server:
        for name, code in (("ops", grpc.StatusCode.OK), ("shop", grpc.StatusCode.PERMISSION_DENIED)):
            async with channel_with(server.server.admin_port, named(name)) as channel:
                call = admin_pb2_grpc.ModelServiceStub(channel).ListModels(admin_pb2.ListModelsRequest(), timeout=10)
                assert await call.code() == code  # type: ignore[misc]


async def test_a_key_with_a_certificate_is_valid_with_that_certificate_only(tmp_path: Path):
    keys = write_key_file(tmp_path, {"shop": SHOP, "ops": OPS}, shop={"certificate": "shop.example"})
    async with mutual(tmp_path, api_keys=keys) as server:
        port = server.server.port
        assert (await end_of(port, named("shop.example"), SHOP))[0] == "OK"
        used = server.metric("lingon_key_last_used_timestamp_seconds", key="shop")
        assert (await end_of(port, named("", "a.example", "shop.example"), SHOP))[0] == "OK"
        assert (await end_of(port, named("other"), OPS))[0] == "OK"
        later = server.metric("lingon_key_last_used_timestamp_seconds", key="shop")
        assert await end_of(port, named("other"), SHOP) == (
            "UNAUTHENTICATED",
            "the API key is not valid with the client certificate 'other'",
        )
        assert server.metric("lingon_key_requests_total", key="shop", code="UNAUTHENTICATED") == 1
        assert server.metric("lingon_key_last_used_timestamp_seconds", key="shop") == later > used > 0


async def test_a_key_with_a_certificate_is_not_valid_without_tls(tmp_path: Path):
    keys = write_key_file(tmp_path, {"shop": SHOP}, shop={"certificate": "shop"})
    async with running(api_keys=keys) as server:
        with pytest.raises(grpc.aio.AioRpcError, match="the API key is not valid with the client certificate ''"):
            await pb_grpc.TranslationServiceStub(server.channel).Translate(TOM, metadata=bearer(SHOP))


async def test_a_revoked_certificate_is_refused_at_once_on_an_open_connection_too(tmp_path: Path):
    lists, revoked, other = tmp_path / "crl.pem", named("shop"), named("shop")
    lists.write_bytes(OURS.revoke())
    async with mutual(tmp_path, tls_client_crl=lists) as server, channel_with(server.server.port, revoked) as channel:
        stub: Any = pb_grpc.TranslationServiceStub(channel)
        await stub.Translate(TOM)
        speaker = stub.TranslateLive()
        await speaker.write(pb.TranslateLiveRequest(start=pb.LiveStart()))
        await speaker.read()
        lists.write_bytes(OURS.revoke(named("another"), revoked))

        async def refused() -> bool:
            try:
                await stub.Translate(TOM)
            except grpc.aio.AioRpcError as error:
                return error.details() == "the client certificate is revoked"
            return False

        await eventually(refused)
        await speaker.write(pb.TranslateLiveRequest(words=pb.LiveWords(words=[pb.LiveWord(text="Tom")])))
        with pytest.raises(grpc.aio.AioRpcError, match="the client certificate is revoked"):
            await speaker.read()
        port = server.server.port
        assert await end_of(port, revoked) == ("UNAUTHENTICATED", "the client certificate is revoked")
        assert (await end_of(port, revoked, method="/no.such.Service/Method"))[0] == "UNAUTHENTICATED"
        assert (await end_of(port, other))[0] == "OK"


async def test_the_list_of_one_authority_revokes_no_certificate_of_another(tmp_path: Path):
    lists, theirs = tmp_path / "crl.pem", Authority("theirs")
    certificate, same_number = named("shop"), theirs.sign("shop", names=(), addresses=())
    lists.write_bytes(theirs.revoke(replace(same_number, serial=certificate.serial)) + OURS.revoke(named("old")))
    async with mutual(tmp_path, tls_client_crl=lists) as server:
        assert (await end_of(server.server.port, certificate))[0] == "OK"


@given(st.lists(st.integers(1, 2**159 - 1), max_size=5), st.booleans())
def test_the_revoked_certificates_are_those_that_another_reader_finds(serials: list[int], twice: bool):
    pem = OURS.revoke(*(CertificatePair(b"", b"", serial) for serial in dict.fromkeys(serials)))
    lists = revocation_lists(pem * (1 + twice), "file")
    assert {int.from_bytes(serial) for _, serial in lists.revoked} == set(serials)
    assert lists.not_after == x509.load_pem_x509_crl(pem).next_update_utc.timestamp()
    (one,) = certificate_ids(OURS.sign().certificate)
    assert {issuer for issuer, _ in lists.revoked} <= {one[0]}


@given(st.binary(max_size=100) | st.integers(0, len(LIST) - 1).map(lambda end: LIST[:end]))
def test_what_is_no_list_of_revoked_certificates_is_refused(content: bytes):
    pem = b"-----BEGIN X509 CRL-----\n" + base64.b64encode(content) + b"\n-----END X509 CRL-----\n"
    with pytest.raises(SettingsError, match="a list of revoked certificates cannot be read"):
        revocation_lists(pem, "file")


def test_keys_new_writes_the_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    new("shop", certificate='the "shop"', file=tmp_path / "keys.toml")
    (key,) = parse((tmp_path / "keys.toml").read_bytes(), "here")
    assert key.certificate == 'the "shop"'
    assert ApiKeyFile(tmp_path / "keys.toml").find(capsys.readouterr().out.strip())[0] == key


@pytest.mark.parametrize("names", ["", ",", "*", "*.", "a*.example", "*.*.example"])
def test_names_that_could_admit_everybody_are_refused(names: str, tmp_path: Path):
    files = {"tls_certificate": tmp_path / "a", "tls_key": tmp_path / "b", "tls_client_ca": tmp_path / "c"}
    with pytest.raises(SettingsError, match=r"tls_client_names \(from --tls-client-names\)"):
        load({**files, "tls_client_names": names}, {}, None)


@pytest.mark.parametrize("name", ["tls_client_names", "tls_client_crl"])
def test_checks_of_client_certificates_need_an_authority(name: str, tmp_path: Path):
    files = {"tls_certificate": tmp_path / "a", "tls_key": tmp_path / "b"}
    with pytest.raises(SettingsError, match=f"{name} needs tls_client_ca"):
        load({**files, name: "shop"}, {}, None)
