"""The server that all foreign clients share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.foreign_server import QUEUE, ForeignServer, foreign_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignServer]:
    with foreign_server(tmp_path_factory.mktemp("server"), max_queue_texts=QUEUE) as found:
        yield found
