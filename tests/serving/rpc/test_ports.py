"""The options of gRPC channels and servers: gRPC ignores one that it does not know."""

from __future__ import annotations

import re
from pathlib import Path

from grpc._cython import cygrpc

from tests.support.repository import PACKAGES, ROOT

OPTION = re.compile(r'"(grpc\.[a-z][\w.]*)"')


def test_every_option_is_one_that_grpc_knows():
    library = Path(cygrpc.__file__).read_bytes()
    used = {
        option
        for folder in (*PACKAGES, "chaos")
        for path in (ROOT / folder).rglob("*.py")
        for option in OPTION.findall(path.read_text(encoding="utf-8"))
    }
    assert len(used) > 10
    assert [option for option in sorted(used) if option.encode() not in library] == []
