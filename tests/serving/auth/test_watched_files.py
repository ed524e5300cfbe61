"""Files of keys and certificates that become unusable: seen without a call, alerted, and not trusted without end."""

from __future__ import annotations

import logging
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import SettingsError
from lingon.pem import not_after
from lingon.serving.auth.api_keys import key_table, new_key
from lingon.serving.auth.watched_files import WatchedFiles
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.credentials import NOW, Authority, bearer, client_credentials, write_key_file
from tests.support.echo_engine import RunningServer, details, failure, running
from tests.support.timing import eventually

SHOP = new_key()
OURS, THEIRS = Authority("ours"), Authority("theirs")
CLIENT = OURS.sign("shop", addresses=())
HOUR = 3600.0
TOM = pb.TranslateRequest(texts=["Tom"])
UNUSABLE: dict[str, tuple[str, bytes | None]] = {
    "keys removed": ("api_keys", None),
    "keys with a typing error": ("api_keys", key_table("shop", SHOP).encode() + b"requests_per_minutes = 3\n"),
    "half a certificate": ("tls_certificate", OURS.sign().certificate[:200]),
    "a certificate of another key": ("tls_certificate", OURS.sign().certificate),
    "authorities removed": ("tls_client_ca", None),
    "half an authority": ("tls_client_ca", OURS.pem[:200]),
    "revocations removed": ("tls_client_crl", None),
    "half a list of revocations": ("tls_client_crl", OURS.revoke()[:100]),
    "a list of revocations that is past its time": ("tls_client_crl", OURS.revoke(due=timedelta(hours=-1))),
}


def secured(folder: Path) -> dict[str, Any]:
    """Write the files of a server with keys and client certificates; returns its settings."""
    (folder / "ca.crt").write_bytes(OURS.pem)
    keys = write_key_file(folder, {"shop": SHOP})
    (folder / "crl.pem").write_bytes(OURS.revoke())
    clients = {"tls_client_ca": folder / "ca.crt", "tls_client_crl": folder / "crl.pem"}
    return {**OURS.sign().write(folder), **clients, "api_keys": keys}


def replace(path: Path, content: bytes | None) -> None:
    """Replace a file atomically, or remove it."""
    if content is None:
        path.unlink()
        return
    part = path.with_suffix(".new")
    part.write_bytes(content)
    os.replace(part, path)


def unusable(server: RunningServer) -> set[str]:
    names = ("api_keys", "tls_certificate", "tls_client_ca", "tls_client_crl")
    return {name for name in names if server.metric("lingon_file_unusable", what=name)}


async def call(server: RunningServer, trusted: Authority = OURS) -> Any:
    """Translate with the certificate and the key of the shop on a new connection; returns the failed call or None."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    address = f"127.0.0.1:{server.server.port}"
    async with grpc.aio.secure_channel(address, client_credentials(trusted, CLIENT), options) as channel:
        stub: Any = pb_grpc.TranslationServiceStub(channel)
        try:
            await stub.Translate(TOM, metadata=bearer(SHOP), timeout=10)
        except grpc.aio.AioRpcError as error:
            return error
    return None


@pytest.mark.parametrize("kind", UNUSABLE)
async def test_an_unusable_file_is_in_the_metrics_without_a_call_until_it_is_mended(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "lingon.serving")
    name, content = UNUSABLE[kind]
    settings = secured(tmp_path)
    before = settings[name].read_bytes()
    async with running(**settings) as server:
        assert unusable(server) == set()
        replace(settings[name], content)
        await eventually(lambda: unusable(server) == {name})
        assert await call(server) is None  # the previous content is used
        replace(settings[name], before)
        await eventually(lambda: unusable(server) == set())
    logged = [record.getMessage() for record in caplog.records if vars(record).get("fields", {}).get("what") == name]
    assert logged == [
        "files not reloaded; the previous content stays",
        "files usable again; their content is the previous one",
    ]


@pytest.mark.parametrize("name", ["api_keys", "tls_client_ca", "tls_client_crl"])
async def test_after_the_grace_an_unusable_file_admits_nobody_until_it_is_mended(name: str, tmp_path: Path):
    settings = secured(tmp_path)
    before = settings[name].read_bytes()
    async with running(**settings, credential_grace_seconds=0) as server:
        assert await call(server) is None
        replace(settings[name], None)
        await eventually(lambda: unusable(server) == {name})
        error = await call(server)
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED
        assert error.details().startswith("the server's file of ")
        assert server.metric("lingon_rejected_total", reason="AUTHENTICATION_UNAVAILABLE") == 1
        assert server.metric("lingon_ready") == 1
        replace(settings[name], before)
        await eventually(lambda: unusable(server) == set())
        assert await call(server) is None


async def test_the_refusal_says_that_the_server_is_the_cause(tmp_path: Path):
    keys = write_key_file(tmp_path, {"shop": SHOP})
    async with running(api_keys=keys, credential_grace_seconds=0) as server:
        keys.unlink()
        await eventually(lambda: unusable(server) == {"api_keys"})
        status, _ = await failure(server.stub.Translate(TOM, metadata=bearer(SHOP)))
    assert details(status)["ErrorInfo"].reason == "AUTHENTICATION_UNAVAILABLE"
    assert status.message == "the server's file of API keys is unusable; no key is valid meanwhile"


def test_the_previous_content_may_be_used_for_the_grace_from_the_first_failure_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path, clock = tmp_path / "file", [0.0]
    path.write_bytes(b"good")
    files = WatchedFiles("api_keys", [path], _parsed, grace=HOUR, clock=lambda: clock[0])
    for moment, content, expired in (
        (10.0, b"bad", False),
        (10.0 + HOUR / 2, b"bad too", False),
        (9.0 + HOUR, b"bad", False),
        (10.0 + HOUR, b"bad", True),
        (11.0 + HOUR, b"bad", True),
        (12.0 + HOUR, b"good", False),
        (13.0 + HOUR, b"bad", False),
        (12.0 + 2 * HOUR, b"bad", False),
        (13.0 + 2 * HOUR, b"bad", True),
    ):
        clock[0] = moment
        path.write_bytes(content)
        files.reload_if_changed()
        assert (files.expired, files.value) == (expired, "good"), moment
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("files unusable for too long") == 2


def _parsed(content: bytes) -> str:
    if content != b"good":
        raise SettingsError("the file is bad")
    return "good"


async def test_an_unusable_file_of_authorities_does_not_keep_a_new_certificate_from_its_use(tmp_path: Path):
    settings, new = secured(tmp_path), THEIRS.sign()
    async with running(**settings) as server:
        replace(settings["tls_client_ca"], None)
        replace(settings["tls_key"], new.key)
        replace(settings["tls_certificate"], new.certificate)
        await eventually(lambda: unusable(server) == {"tls_client_ca"})
        assert await call(server, trusted=THEIRS) is None


async def test_the_expiry_of_certificates_is_in_the_metrics_and_follows_the_files_without_a_call(tmp_path: Path):
    settings = secured(tmp_path)

    def left(name: str) -> int:
        moment = server.metric("lingon_tls_not_after_timestamp_seconds", what=name)
        return round((moment - NOW.timestamp()) / 3600)

    async with running(**settings) as server:
        assert [left("tls_certificate"), left("tls_client_ca")] == [24, 24]
        renewed = OURS.sign(lasts=timedelta(hours=99))
        replace(settings["tls_certificate"], renewed.certificate)
        replace(settings["tls_key"], renewed.key)
        await eventually(lambda: left("tls_certificate") == 99)
        replace(settings["tls_certificate"], renewed.certificate + OURS.pem)  # the first of a chain counts
        await eventually(lambda: left("tls_certificate") == 24)


def test_a_content_that_expires_while_it_is_used_becomes_unusable(tmp_path: Path):
    path, clock = tmp_path / "file", [0.0]
    path.write_bytes(b"good")

    def check(content: str) -> None:
        if clock[0] >= 10:
            raise SettingsError("the content is too old")

    files = WatchedFiles("tls_client_crl", [path], _parsed, check=check, grace=HOUR, clock=lambda: clock[0])
    found = []
    for clock[0] in (9.0, 10.0, 9.0 + HOUR, 10.0 + HOUR):
        files.reload_if_changed()
        found.append((files.unusable, files.expired))
    assert found == [(False, False), (True, False), (True, False), (True, True)]


MOMENTS = st.datetimes(datetime(1985, 1, 1), datetime(2130, 1, 1), timezones=st.just(UTC))


@given(st.lists(MOMENTS, min_size=1, max_size=3))
def test_the_expiry_of_certificates_is_that_of_the_first_to_expire(moments: list[datetime]):
    pairs = [OURS.sign(lasts=moment - NOW, since=timedelta(days=75 * 365)) for moment in moments]
    expected = min(x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc for pair in pairs)
    assert not_after(b"".join(pair.certificate for pair in pairs), "file") == expected.timestamp()


@given(st.binary(max_size=200))
def test_what_is_no_certificate_has_no_expiry(content: bytes):
    pem = ssl.DER_cert_to_PEM_cert(content).encode()
    with pytest.raises(SettingsError, match="the validity of a certificate cannot be read"):
        not_after(pem, "file")
