"""A scripted service, the command that asks it, and clients that ask a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.echo_engine import RunningServer
from tests.support.either_client import KINDS, asked
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


@pytest.fixture(params=KINDS)
def ask(request: pytest.FixtureRequest) -> Callable[..., Awaitable[Any]]:
    """await ask(server, "translate", "text") with a new client of either kind; a stream comes as a list."""

    async def with_client(
        server: RunningServer, name: str, /, *values: Any, client: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        settings = {"target": f"127.0.0.1:{server.server.port}", **(client or {})}
        return await asked(request.param, settings, name, *values, **options)

    return with_client
