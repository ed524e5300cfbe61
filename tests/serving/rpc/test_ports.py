"""The options of gRPC channels and servers, of which gRPC ignores one that it does not know; files for connections."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from grpc._cython import cygrpc

from lingon.serving.rpc import ports
from tests.support.repository import PACKAGES, ROOT

OPTION = re.compile(r'"(grpc\.[a-z][\w.]*)"')


def test_every_option_is_one_that_grpc_knows():
    library = Path(cygrpc.__file__).read_bytes()
    used = {
        option
        for folder in (*PACKAGES, "tests/reliability")
        for path in (ROOT / folder).rglob("*.py")
        for option in OPTION.findall(path.read_text(encoding="utf-8"))
    }
    assert len(used) > 10
    assert [option for option in sorted(used) if option.encode() not in library] == []


@pytest.mark.parametrize(
    ("files", "http", "expected"),
    [
        (1_048_576, True, (8192, 4096)),
        (1024, True, (512, 256)),
        (1024, False, (768, 384)),
        (64, False, (32, 16)),
    ],
)
def test_a_port_takes_no_more_connections_than_files_may_be_open(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    files: int,
    http: bool,
    expected: tuple,
):
    monkeypatch.setattr(ports.resource, "getrlimit", lambda _: (files, files))
    assert ports.fitting_connections(http=http) == expected
    assert (expected != (8192, 4096)) == bool(caplog.records)
