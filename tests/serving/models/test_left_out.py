"""A version that is not whole keeps no server from starting with a lower one; what was asked for by version stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lingon.bundle import store
from lingon.bundle.store import open_bundle, trusted_line
from lingon.errors import BundleError
from lingon.serving.doctor import examine, report
from tests.support.echo_engine import SERVING, bundle, running
from tests.support.reload_harness import refused, running_with_admin_port


def missing(folder: Path) -> None:
    (folder / "tokenizer.model").unlink()


def cut(folder: Path) -> None:
    path = folder / "tokenizer.model"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def with_a_temporary_file(folder: Path) -> None:
    (folder / ".tokenizer.model.Xa81fQ").write_bytes(b"")  # as rsync writes it


def with_half_a_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:300])


def with_an_empty_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_bytes(b"")


DAMAGES = [missing, cut, with_a_temporary_file, with_half_a_manifest, with_an_empty_manifest]


def two_versions(folder: Path, damage: Callable[[Path], None]) -> Path:
    """Publish en-de/1 and a damaged en-de/2; returns the folder of the model."""
    bundle(folder)
    damage(bundle(folder, version=2).folder)
    return folder / "en-de"


def without_a_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize("damage", [*DAMAGES, without_a_manifest, empty])
async def test_a_start_serves_the_highest_version_that_is_whole(tmp_path, caplog, damage):
    model = two_versions(tmp_path, damage)
    async with running(models=(model,)) as server:
        assert (await server.translate("Tom")).version == "1"
        assert [await server.health(name) for name in ("model/en-de", "en-de/1")] == [SERVING, SERVING]
        assert (await refused(server.health("en-de/2")))[0] == "NOT_FOUND"
        assert server.metric("lingon_versions_left_out") == 1
    (line,) = [each for each in caplog.records if each.message == "a version is not whole and is left out"]
    assert line.fields["folder"] == model
    assert str(model / "2") in line.fields["reason"]


async def test_several_versions_that_are_not_whole_are_left_out(tmp_path):
    two_versions(tmp_path, cut)
    with_half_a_manifest(bundle(tmp_path, version=10).folder)
    async with running(models=(tmp_path,)) as server:
        assert (await server.translate("Tom")).version == "1"
        assert server.metric("lingon_versions_left_out") == 2


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_version_that_was_asked_for_is_not_replaced_by_a_lower_one(tmp_path, damage):
    with pytest.raises(BundleError, match=f"{two_versions(tmp_path, damage)}/2/"):
        async with running(models=(tmp_path / "en-de" / "2",)):
            pass


async def test_a_start_without_a_whole_version_names_the_highest(tmp_path):
    missing(two_versions(tmp_path, cut) / "1")
    with pytest.raises(BundleError, match=r"en-de/2/tokenizer.model: was altered"):
        async with running(models=(tmp_path,)):
            pass


async def test_a_whole_version_that_cannot_be_served_ends_the_start(tmp_path):
    bundle(tmp_path)
    shutil.copytree(tmp_path / "en-de" / "1", tmp_path / "en-de" / "2")  # its manifest is that of version 1
    with pytest.raises(BundleError, match="declares version 1 in the folder of version 2"):
        async with running(models=(tmp_path,)):
            pass


async def test_a_version_that_is_being_copied_need_not_be_trusted_yet(tmp_path):
    model = two_versions(tmp_path, missing)
    (trust := tmp_path / "trusted").write_text(f"{trusted_line(open_bundle(model / '1'))}\n")
    async with running(models=(model,), trust=trust) as server:
        assert (await server.translate("Tom")).version == "1"


async def test_a_whole_version_that_is_not_trusted_ends_the_start(tmp_path):
    model = two_versions(tmp_path, lambda folder: None)
    (trust := tmp_path / "trusted").write_text(f"{trusted_line(open_bundle(model / '1'))}\n")
    with pytest.raises(BundleError, match="is not trusted"):
        async with running(models=(model,), trust=trust):
            pass


async def test_a_swap_to_a_model_whose_highest_version_is_not_whole_changes_nothing():
    async with running_with_admin_port() as admin:
        for damage, reason in (
            (cut, "tokenizer.model: was altered"),
            (without_a_manifest, "manifest.json: No such file"),
        ):
            damage(admin.publish(2))
            status, message = await refused(admin.swap(admin.server.folder / "en-de"))
            assert (status, f"en-de/2/{reason}" in message) == ("FAILED_PRECONDITION", True), message
            shutil.rmtree(admin.server.folder / "en-de" / "2")
        assert await admin.version() == "1"
        assert admin.server.metric("lingon_versions_left_out") == 0  # nothing else is served than was before


async def test_a_repaired_version_can_be_swapped_in_and_ends_the_count(tmp_path):
    model = two_versions(tmp_path, missing)
    async with running_with_admin_port(models=(model,)) as admin:
        assert admin.server.metric("lingon_versions_left_out") == 1
        shutil.copy(model / "1" / "tokenizer.model", model / "2")
        await admin.swap(model / "2")
        assert await admin.version() == "2"
        assert admin.server.metric("lingon_versions_left_out") == 0


async def test_a_folder_that_cannot_be_read_is_left_out(tmp_path, caplog, monkeypatch):
    """As lost+found of a volume; the tests may run as root, who can read everything."""
    bundle(tmp_path)
    (tmp_path / "lost+found").mkdir()
    real = store.versions

    def versions(path: Path) -> list[int]:
        if path.name == "lost+found":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(store, "versions", versions)
    async with running(models=(tmp_path,)) as server:
        assert (await server.translate("Tom")).version == "1"
    (line,) = [each for each in caplog.records if each.message == "a folder cannot be read, and is left out"]
    assert line.fields["folder"] == str(tmp_path / "lost+found")
    (model,) = examine([tmp_path])["models"]
    assert model["problem"] is None


def test_the_doctor_does_not_promise_a_start_that_would_fail(tmp_path):
    path = bundle(tmp_path).folder.parent
    (tmp_path / "empty").mkdir()
    for paths, problem in (
        ([path, tmp_path / "empty"], "no bundle is here or one folder below"),
        ([path, path], "en-de/1 is given 2 times; give each version once"),
    ):
        findings = examine(paths)
        assert not findings["can_serve"]
        assert any(problem in str(model["problem"]) for model in findings["models"])


def test_the_doctor_reports_what_a_start_would_leave_out(tmp_path):
    findings = examine([two_versions(tmp_path, cut)])
    (model,) = findings["models"]
    assert (model["label"], model["problem"], len(model["left_out"])) == ("en-de/1", None, 1)
    assert f"left out, not whole: {tmp_path}/en-de/2/tokenizer.model: was altered" in report(findings)
