"""With the setting `trust`, a start, a load and a swap serve only bundles whose digest the file has."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingon.bundle.store import open_bundle, trusted_line
from lingon.errors import BundleError
from tests.support.echo_engine import bundle, running
from tests.support.reload_harness import AdministeredServer, refused, running_with_admin_port


def line(folder: Path) -> str:
    """The line that trusts the bundle in a folder."""
    return f"{trusted_line(open_bundle(folder))}\n"


@pytest.fixture
async def trusting(tmp_path):
    """A server that trusts version 1 of en-de, and its file of trusted bundles."""
    path = tmp_path / "trusted"
    path.write_text(line(bundle(tmp_path).folder))  # equal to the bundle that the server gets
    async with running_with_admin_port(trust=path) as admin:
        yield admin, path


async def served(admin: AdministeredServer) -> list[tuple[str, str, str]]:
    return [(name, version, state) for name, version, state in await admin.models()]


async def test_a_server_does_not_start_with_a_bundle_that_is_not_trusted(tmp_path):
    path = tmp_path / "trusted"
    path.write_text("")
    with pytest.raises(BundleError, match=rf"is not trusted: {path} has no digest of en-de/1$"):
        async with running(trust=path):
            pass


async def test_a_swap_to_a_bundle_that_is_not_trusted_changes_nothing(trusting):
    admin, path = trusting
    status, message = await refused(admin.swap(admin.publish(2)))
    assert status == "FAILED_PRECONDITION"
    assert message.endswith(f"is not trusted: {path} has no digest of en-de/2")
    assert await served(admin) == [("en-de", "1", "SERVING")]
    assert 2 not in admin.versions.runners  # nothing of it was loaded


async def test_a_change_of_the_file_applies_to_the_next_load(trusting):
    admin, path = trusting
    folder = admin.publish(2)
    await refused(admin.load(folder))
    path.write_text(path.read_text() + line(folder))
    await admin.load(folder)
    path.write_text("")
    assert (await refused(admin.swap(admin.publish(3))))[0] == "FAILED_PRECONDITION"
    assert await served(admin) == [("en-de", "1", "SERVING"), ("en-de", "2", "SERVING")]


async def test_with_a_file_that_cannot_be_used_no_model_is_loaded(trusting):
    admin, path = trusting
    folder = admin.publish(2)
    path.write_text(line(folder) + "not a digest\n")
    status, message = await refused(admin.load(folder))
    assert (status, message.partition(", as")[0]) == (
        "FAILED_PRECONDITION",
        f"{path}: line 2 must be a SHA-256, two spaces and NAME/VERSION/manifest.json",
    )
    path.unlink()
    assert (await refused(admin.load(folder)))[1] == f"{path}: No such file or directory"
    assert await served(admin) == [("en-de", "1", "SERVING")]
