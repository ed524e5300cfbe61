"""A scripted service and the command that asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scripted_server import Command, FakeService, serving


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def address(service: FakeService) -> Iterator[str]:
    with serving(service) as where:
        yield where


@pytest.fixture
def lingon(tmp_path: Path, address: str, service: FakeService) -> Command:
    """`lingon VERB ...` against the service, which takes as many texts at once as a real one."""
    service.max_texts = 256
    folder = tmp_path / "site"
    folder.mkdir()
    return Command(folder, address)
