"""An archive of a model is read as its folder, and nothing of it is left; a hostile one is one line."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from lingon.cli.main import main
from lingon.errors import SourceModelError
from lingon.importers.archive import folder_of
from tests.support.foreign_models import save_opus_mt


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_opus_mt(tmp_path_factory.mktemp("opus") / "opus-mt-en-de", seed=6)


@pytest.mark.parametrize(("form", "suffix"), [("zip", ".zip"), ("gztar", ".tar.gz"), ("xztar", ".tar.xz")])
@pytest.mark.parametrize("nested", [True, False])
def test_an_archive_is_read_as_its_folder(
    opus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, suffix: str, *, nested: bool
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    inside = {"root_dir": opus.parent, "base_dir": opus.name} if nested else {"root_dir": opus}
    archive = Path(shutil.make_archive(str(tmp_path / "model"), form, **inside))
    assert archive.name == f"model{suffix}"
    assert main(["import", str(archive), "--report"]) == 0
    with folder_of(archive) as folder:
        assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in opus.iterdir())
        assert (folder / "source.spm").read_bytes() == (opus / "source.spm").read_bytes()
    assert not list((tmp_path / "temporary").iterdir())


def test_an_error_names_the_archive(opus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = Path(shutil.copytree(opus, tmp_path / "changed"))
    (changed / "vocab.json").unlink()
    archive = Path(shutil.make_archive(str(tmp_path / "model"), "zip", root_dir=changed))
    assert main(["import", str(archive), "--report"]) == 1
    assert f"{archive}/vocab.json: No such file" in capsys.readouterr().err


def zipped(path: Path, name: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "x")


def linked(path: Path, name: str) -> None:
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("config.json")
        entry.type, entry.linkname = tarfile.SYMTYPE, name
        archive.addfile(entry)


def tarred(path: Path, name: str) -> None:
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))


HOSTILE = {
    "zip upwards": (".zip", zipped, "../evil", "'../evil' is the name of a file outside the archive"),
    "zip absolute": (".zip", zipped, "/evil", "'/evil' is the name of a file outside the archive"),
    "zip backwards": (".zip", zipped, "..\\evil", "is the name of a file outside the archive"),
    "tar upwards": (".tar", tarred, "a/../../evil", "'a/../../evil' is the name of a file outside the archive"),
    "tar link": (".tar", linked, "/etc/passwd", "config.json is no plain file"),
    "no zip": (".zip", lambda path, name: path.write_bytes(b"PK"), "", "cannot be unpacked"),
    "no tar": (".tar.gz", lambda path, name: path.write_bytes(b"x"), "", "cannot be unpacked"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_one_line(tmp_path: Path, name: str) -> None:
    suffix, write, inside, message = HOSTILE[name]
    path = tmp_path / f"model{suffix}"
    write(path, inside)
    with pytest.raises(SourceModelError, match="model") as caught, folder_of(path):
        pass
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name]


def test_too_much_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingon.importers.archive.MOST_BYTES", 100)
    with zipfile.ZipFile(tmp_path / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.npz", b"0" * 101)
    with (
        pytest.raises(SourceModelError, match="must have at most 100 bytes when unpacked, has 101"),
        folder_of(tmp_path / "model.zip"),
    ):
        pass
