"""`lingon gateway`, in a process of its own in front of a server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.processes import ENVIRONMENT, lingon, serving
from tests.support.repository import ROOT


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


def test_a_port_in_use_is_named_with_the_option_of_the_verb(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = lingon("gateway", "--port", str(port), code=1, folder=tmp_path)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; set --port" in message


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--apis", "lingon,bing"], 2, "there is no API 'bing'; the APIs are lingon, deepl, libretranslate, google"),
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
