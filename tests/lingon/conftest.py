"""A scripted service and the command that asks it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forked_commands import ForkedCommands, forked_commands
from tests.support.scripted_server import Command, FakeService, serving


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def address(service: FakeService) -> Iterator[str]:
    with serving(service) as where:
        yield where


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    """The process whose forks are the commands. typer imports its adapters with the first command."""
    modules = "lingon.cli.document", "lingon.cli.translate", "lingon.client.client", "typer._adapters"
    with forked_commands(tmp_path_factory.mktemp("streams"), *modules, "tests.support.scripted_server") as started:
        yield started


@pytest.fixture
def lingon(tmp_path: Path, address: str, service: FakeService, forks: ForkedCommands) -> Command:
    """`lingon VERB ...` against the service, which takes as many texts at once as a real one."""
    service.max_texts = 256
    folder = tmp_path / "site"
    folder.mkdir()
    return Command(folder, address, forks)
