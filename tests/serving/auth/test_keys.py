"""API keys: the file that a server reads, the verb that writes it, and how clients send a key."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lingon import AsyncClient, Client, LingonError, ServerError
from lingon.cli.main import main
from lingon.client.client import ModelsClient
from lingon.errors import SettingsError, Unauthenticated
from lingon.serving.auth.api_keys import (
    EMPTY_FILE_DELAY,
    ApiKey,
    ApiKeyFile,
    append_table,
    hash_of,
    key_table,
    new_key,
    parse,
)
from tests.support.credentials import write_key_file
from tests.support.echo_engine import running

SHOP, OPS = new_key(), new_key()
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC).timestamp()

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lingon(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; returns exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def test_a_new_key_is_printed_once_and_its_table_is_valid(lingon: Run, tmp_path: Path):
    path = tmp_path / "keys.toml"
    code, printed, errors = lingon("keys", "new", "shop", "--requests-per-minute", 600, "--file", path)
    assert code == 0
    key, quota = ApiKeyFile(path).find(printed.strip())
    assert (key.name, key.admin, quota.limits) == ("shop", False, (600, None))
    assert printed.count("\n") == 1
    assert printed.strip() not in path.read_text() + errors
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_a_file_the_table_is_printed_on_standard_error(lingon: Run, tmp_path: Path):
    options = ["--admin", "--characters-per-minute", 9, "--second-per-hour", 0, "--expires", "2999-01-01"]
    _, printed, errors = lingon("keys", "new", "ops", *options)
    (key,) = parse("\n".join(line for line in errors.splitlines() if not line.startswith("lingon:")).encode(), "here")
    assert key.hash == hash_of(printed.strip())
    assert (key.admin, key.characters_per_minute, key.second_per_hour) == (True, 9, 0)
    assert str(key.expires) == "2999-01-01"


def test_adding_a_key_keeps_the_content_and_mode_of_the_file(lingon: Run, tmp_path: Path):
    path = write_key_file(tmp_path, {"shop": SHOP})
    path.write_text(f"# keys of the shop\n{path.read_text()}")
    path.chmod(0o640)
    _, printed, _ = lingon("keys", "new", "ops", "--file", path)
    key_file = ApiKeyFile(path)
    assert [key_file.find(key)[0].name for key in (SHOP, printed.strip())] == ["shop", "ops"]
    assert path.read_text().startswith("# keys of the shop\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_no_key_is_lost_if_several_are_added_at_once(tmp_path: Path):
    keys = {f"key-{number}": new_key() for number in range(12)}
    path = tmp_path / "keys.toml"
    threads = [threading.Thread(target=append_table, args=(path, key_table(*pair))) for pair in keys.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key.name for key in parse(path.read_bytes(), "here")} == set(keys)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["a b"], "a key's name has 1 to 64 letters"),
        (['a"\nadmin = true\nx = "'], "a key's name has 1 to 64 letters"),
        (["a", "--expires", "soon"], "--expires must be a date as 2027-01-01, got 'soon'"),
        (["a", "--expires", "2020-01-01"], "--expires must be after today, "),
        (["a", "--expires", str(datetime.now(UTC).date())], "--expires must be after today, "),
        (["shop", "--file", "FILE"], "key 2: has the name of an earlier one"),
        (["a", "--requests-per-minute", "0"], "--requests-per-minute"),
    ],
)
def test_wrong_arguments_are_one_line(lingon: Run, tmp_path: Path, arguments: list[str], why: str):
    path = write_key_file(tmp_path, {"shop": SHOP})
    before = path.read_bytes()
    code, printed, errors = lingon("keys", "new", *(str(path) if part == "FILE" else part for part in arguments))
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert why in errors
    assert path.read_bytes() == before


def test_no_key_is_added_if_it_cannot_be_printed(tmp_path: Path):
    path = write_key_file(tmp_path, {"shop": SHOP})
    before = path.read_bytes()
    for redirection, why in ((">/dev/full", "No space left on device"), (">&-", "is closed")):
        line = f'exec "$0" -m lingon keys new ops --file "$1" {redirection}'
        done = subprocess.run(["sh", "-c", line, sys.executable, path], capture_output=True, text=True, check=False)
        assert (done.returncode, why in done.stderr.splitlines()[-1]) == (1, True)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


def test_a_key_can_be_written_to_a_file_for_its_owner_alone(lingon: Run, tmp_path: Path):
    path, key_file = tmp_path / "keys.toml", tmp_path / "shop.key"
    before = os.umask(0)
    try:
        code, printed, errors = lingon("keys", "new", "shop", "--file", path, "--key-file", key_file)
    finally:
        os.umask(before)
    assert (code, printed) == (0, "")
    key = key_file.read_text().strip()
    assert ApiKeyFile(path).find(key)[0].name == "shop"
    assert key not in errors
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.iterdir()) == [path, key_file]


@pytest.mark.parametrize(("name", "why"), [("shop.key", "File exists"), ("no/shop.key", "No such file or directory")])
def test_no_key_is_added_if_its_file_cannot_be_written(lingon: Run, tmp_path: Path, name: str, why: str):
    path = write_key_file(tmp_path, {"shop": SHOP})
    (tmp_path / "shop.key").write_text("an earlier key")
    before = path.read_bytes()
    code, printed, errors = lingon("keys", "new", "ops", "--file", path, "--key-file", tmp_path / name)
    assert (code, printed, errors.count("\n")) == (1, "", 1)
    assert f"{tmp_path / name}: {why}; no key was created" in errors
    assert path.read_bytes() == before
    assert (tmp_path / "shop.key").read_text() == "an earlier key"


def test_a_key_file_that_is_not_utf8_is_one_line(lingon: Run, tmp_path: Path):
    path = tmp_path / "keys.toml"
    path.write_bytes(b"# gr\xfcn\n")
    code, printed, errors = lingon("keys", "new", "shop", "--file", path)
    assert (code, printed) == (2, "")
    assert errors == f"lingon: error: {path}: not UTF-8 (invalid start byte at byte 4)\n"
    assert path.read_bytes() == b"# gr\xfcn\n"


GOOD = key_table("shop", SHOP)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[key]\n", "not TOML"),
        (f"key = {'[' * 10_000}", "not TOML"),
        (f"{GOOD}{GOOD}", "key 2: has the name of an earlier one"),
        (GOOD + key_table("other", SHOP), "key 2: has the hash of an earlier one"),
        (f"limit = 3\n{GOOD}", r"must hold \[\[key\]\] tables and nothing else"),
        ("key = 3\n", r"must hold \[\[key\]\] tables and nothing else"),
        (f"{GOOD}request_per_minute = 3\n", "key 1: request_per_minute: "),
        (f"{GOOD}requests_per_minute = 0\n", "key 1: requests_per_minute: "),
        (f'{GOOD}expires = "soon"\n', "key 1: expires"),
        (f'[[key]]\nname = "shop"\nhash = "{SHOP}"\n', "key 1: hash: "),
        (GOOD.replace("sha256:", "md5:"), "key 1: hash: "),
        (GOOD.replace('"shop"', '"the shop"'), "key 1: name: "),
    ],
    ids=[
        *("no TOML", "nested too deep", "a name twice", "a hash twice", "another setting", "no table"),
        *("an unknown field", "a limit of 0", "no date", "a key, not its hash", "another hash", "a name with a space"),
    ],
)
def test_a_bad_file_is_one_line_that_quotes_no_key(tmp_path: Path, text: str, why: str):
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=why) as raised:
        ApiKeyFile(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)
    assert SHOP not in str(raised.value)


def test_a_missing_file_is_one_line(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"keys\.toml: No such file or directory"):
        ApiKeyFile(tmp_path / "keys.toml")


@pytest.mark.parametrize("expires", ["2027-01-01", "2027-01-01T00:00:00Z", "2027-01-01T01:00:00+01:00"])
def test_a_key_is_valid_until_it_expires(tmp_path: Path, expires: str):
    path = tmp_path / "keys.toml"
    path.write_text(f"{GOOD}expires = {expires}\n")
    ApiKeyFile(path, clock=lambda: NEW_YEAR - 0.001).find(SHOP)
    with pytest.raises(Unauthenticated, match="has expired"):
        ApiKeyFile(path, clock=lambda: NEW_YEAR).find(SHOP)


def test_a_changed_file_is_reloaded_and_an_invalid_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = write_key_file(tmp_path, {"shop": SHOP})
    key_file = ApiKeyFile(path, interval=0)
    caplog.set_level(logging.INFO)
    for bad in ("[[key", f'[[key]]\nname = "ops"\nhash = "{OPS}"\n', None):
        path.unlink()
        if bad is not None:
            path.write_text(bad)
        caplog.clear()
        for _ in range(3):
            assert key_file.find(SHOP)[0].name == "shop"
        assert len(caplog.records) == 1
        assert not any(key in str(vars(record)) for record in caplog.records for key in (SHOP, OPS))
    write_key_file(tmp_path, {"ops": OPS})
    assert key_file.find(OPS)[0].name == "ops"
    with pytest.raises(Unauthenticated):
        key_file.find(SHOP)


def test_an_emptied_file_takes_effect_after_a_delay(tmp_path: Path):
    path = write_key_file(tmp_path, {"shop": SHOP})
    key_file = ApiKeyFile(path, interval=0)
    for nothing in ("", "# none\n"):
        write_key_file(tmp_path, {"shop": SHOP})
        assert key_file.find(SHOP)
        path.write_text(nothing)
        assert key_file.find(SHOP)
        long_ago = time.time() - EMPTY_FILE_DELAY
        os.utime(path, (long_ago, long_ago))
        with pytest.raises(Unauthenticated):
            key_file.find(SHOP)


def test_a_reload_keeps_the_quota_of_a_key_unless_its_limits_changed(tmp_path: Path):
    limit = {"requests_per_minute": 1}
    key_file = ApiKeyFile(write_key_file(tmp_path, {"shop": SHOP}, shop=limit), interval=0)
    _, quota = key_file.find(SHOP)
    write_key_file(tmp_path, {"shop": SHOP, "ops": OPS}, shop=limit)
    assert key_file.find(SHOP)[1] is quota
    write_key_file(tmp_path, {"shop": SHOP}, shop={"requests_per_minute": 2})
    assert key_file.find(SHOP)[1].limits == (2, None)


def test_every_hash_is_compared_even_after_a_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    key_file = ApiKeyFile(write_key_file(tmp_path, {"shop": SHOP, "ops": OPS, "more": new_key()}))
    for key in (SHOP, new_key()):
        compared.clear()
        try:
            key_file.find(key)
        except Unauthenticated:
            assert key != SHOP
        assert len(compared) == 3


def test_new_keys_are_long_and_unique():
    keys = [new_key() for _ in range(1000)]
    assert len(set(keys)) == 1000
    assert all(len(key.removeprefix("lingon_")) == 43 for key in keys)  # 256 bits, 6 in a character
    assert ApiKey(name="shop", hash=hash_of(keys[0]))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_a_client_sends_its_key(kind: Any, tmp_path: Path):
    async with running(api_keys=write_key_file(tmp_path, {"shop": SHOP})) as server:
        target = f"127.0.0.1:{server.server.port}"

        async def translate(**arguments: Any) -> str:
            if kind is AsyncClient:
                async with AsyncClient(target, **arguments) as client:
                    return (await client.translate("Tom")).text
            with Client(target, **arguments) as client:
                return (await asyncio.to_thread(client.translate, "Tom")).text

        assert await translate(api_key=SHOP) == "Tom"
        for arguments in ({}, {"api_key": OPS}):
            with pytest.raises(ServerError) as raised:
                await translate(**arguments)
            assert raised.value.status == "UNAUTHENTICATED"
            assert OPS not in str(raised.value)


LOCAL = (
    *("127.0.0.1:50051", "127.9.9.9:1", "localhost:50051", "LOCALHOST.:50051", "[::1]:50051", "::1", "localhost"),
    *("unix:/run/lingon.sock", "unix:lingon.sock", "unix:///run/lingon.sock", "unix-abstract:lingon"),
    *("ipv4:127.0.0.1:50051", "ipv4:127.0.0.1:1,127.0.0.2:1", "ipv6:[::1]:50051", "ipv6:%5B::1%5D:50051"),
    *("dns:///localhost:50051", "dns:localhost:50051"),
)
FOREIGN = (
    *("lingon.example:50051", "192.0.2.1:50051", "[2001:db8::1]:50051", "0.0.0.0:50051", "lingon", "2001:db8::1"),
    *("ipv4:127.0.0.1:1,192.0.2.1:1", "ipv6:[2001:db8::1]:1", "dns:///lingon.example:50051", "127.0.0.1.example:50051"),
    *(
        "dns://192.0.2.1/localhost:50051",
        "xds:///localhost",
        "localhost.example:50051",
        "dns:lingon.example:1",
        "127.1:1",
    ),
)


@pytest.mark.parametrize("target", LOCAL)
def test_a_key_is_sent_without_tls_to_this_machine(target: str):
    Client(target, api_key=SHOP).close()


@pytest.mark.parametrize("kind", [Client, AsyncClient, ModelsClient])
@pytest.mark.parametrize("target", FOREIGN)
def test_a_key_is_not_sent_without_tls_to_another_machine(kind: Any, target: str):
    with pytest.raises(SettingsError, match=r"would be sent unencrypted to .*insecure=True") as raised:
        kind(target, api_key=SHOP)
    assert SHOP not in str(raised.value)
    for arguments in ({"tls": True}, {"insecure": True}):
        kind(target, api_key=SHOP, **arguments)
    kind(target)


def test_a_key_in_the_metadata_is_a_key():
    with pytest.raises(SettingsError, match="would be sent unencrypted"):
        Client("lingon.example:50051", metadata=[("Authorization", f"Bearer {SHOP}")])


async def test_a_key_for_this_machine_goes_through_no_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with running(api_keys=write_key_file(tmp_path, {"shop": SHOP})) as server:
        with Client(f"localhost:{server.server.port}", api_key=SHOP, retries=0, timeout=10) as client:
            assert (await asyncio.to_thread(client.translate, "Tom")).text == "Tom"


async def test_the_command_refuses_to_send_a_key_without_tls(
    capfd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("LINGON_API_KEY", SHOP)
    command = ["translate", "--server", "lingon.example.invalid:1", "--timeout", "1", "Tom"]
    for more, variables, sent in (([], {}, False), (["--insecure"], {}, True), ([], {"LINGON_INSECURE": "1"}, True)):
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            code = await asyncio.to_thread(main, [*command, *more])
        errors = capfd.readouterr().err
        assert (code, errors.count("\n")) == (1 if sent else 2, 1)
        assert ("would be sent unencrypted to lingon.example.invalid:1" in errors) is not sent


@pytest.mark.parametrize("key", ["", "canary key", "canary\n", "canäry"])
def test_an_impossible_key_is_refused_without_quoting_it(key: str):
    with pytest.raises(LingonError, match="the API key is empty, or has spaces") as raised:
        Client(api_key=key)
    assert "canary" not in str(raised.value)
    assert "canäry" not in str(raised.value)


async def test_the_command_takes_its_key_from_a_file_or_the_environment(
    tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "shop.key"
    path.write_text(f"{SHOP}\n")
    async with running(api_keys=write_key_file(tmp_path, {"shop": SHOP})) as server:
        command = ["translate", "--server", f"127.0.0.1:{server.server.port}", "Tom"]

        async def lingon(*more: str) -> tuple[int, str, str]:
            code = await asyncio.to_thread(main, [*command, *more])
            return code, *capfd.readouterr()

        needed = "lingon: error: an API key is needed: give --api-key-file or set LINGON_API_KEY\n"
        assert await lingon() == (1, "", needed)
        assert await lingon("--api-key-file", str(path)) == (0, "Tom\n", "")
        monkeypatch.setenv("LINGON_API_KEY_FILE", str(path))
        assert await lingon() == (0, "Tom\n", "")
        monkeypatch.delenv("LINGON_API_KEY_FILE")
        monkeypatch.setenv("LINGON_API_KEY", OPS)
        assert await lingon() == (1, "", "lingon: error: the API key is not known\n")
        assert (await lingon("--api-key-file", str(path)))[0] == 0
        monkeypatch.setenv("LINGON_API_KEY", SHOP)
        assert await lingon() == (0, "Tom\n", "")
        code, _, errors = await lingon("--api-key-file", str(tmp_path / "none"))
        assert (code, errors) == (2, f"lingon: error: {tmp_path / 'none'}: No such file or directory\n")
