"""An archive of a model is read as its folder, and nothing of it is left; a hostile one is one line."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

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


def sparse(path: Path, name: str) -> None:
    """A file of 64 GiB of zeros, as GNU tar writes one that has no data."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = tarfile.GNUTYPE_SPARSE, 0
    head = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    head[483:495] = (64 * 2**30).to_bytes(12, "big")
    head[483] |= 0x80
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    path.write_bytes(bytes(head) + bytes(1024))


def zeros(count: int) -> Callable[[Path, str], None]:
    """A tar file, packed as its name says, with a file of zeros."""

    def write(path: Path, name: str) -> None:
        with tarfile.open(path, f"w:{path.suffix[1:]}") as archive:  # type: ignore[call-overload]
            entry = tarfile.TarInfo(name)
            entry.size = count
            archive.addfile(entry, io.BytesIO(bytes(count)))

    return write


def long_header(path: Path, name: str) -> None:
    """A name of 65 MiB, in a header that tarfile reads whole."""
    with gzip.open(path, "wb", 1) as file:
        entry = tarfile.TarInfo(name)
        entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 65 * 2**20
        file.write(entry.tobuf(tarfile.GNU_FORMAT))
        file.write(bytes(entry.size))


def many_folders(path: Path, name: str) -> None:
    with gzip.open(path, "wb", 1) as file:
        entry = tarfile.TarInfo(name)
        entry.type = tarfile.DIRTYPE
        file.write(entry.tobuf(tarfile.GNU_FORMAT) * 20_000)


def cut(path: Path, name: str) -> None:
    zeros(10_000)(path, name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


HOSTILE = {
    "zip upwards": (".zip", zipped, "../evil", "'../evil' is the name of a file outside the archive"),
    "zip absolute": (".zip", zipped, "/evil", "'/evil' is the name of a file outside the archive"),
    "zip backwards": (".zip", zipped, "..\\evil", "is the name of a file outside the archive"),
    "tar upwards": (".tar", tarred, "a/../../evil", "'a/../../evil' is the name of a file outside the archive"),
    "tar link": (".tar", linked, "/etc/passwd", "config.json is no plain file"),
    "no zip": (".zip", lambda path, name: path.write_bytes(b"PK"), "", "cannot be unpacked"),
    "sparse": (".tar", sparse, "model.npz", "must have at most"),
    "gzip bomb": (
        ".tar.gz",
        zeros(2**27),
        "model.npz",
        "bytes when unpacked, by its own size, has 134,217,728 or more",
    ),
    "bzip2 bomb": (".tar.bz2", zeros(2**27), "model.npz", "by its own size, has 134,217,728 or more"),
    "long header": (".tar.gz", long_header, "model.npz", "its headers have more than 67,108,864 bytes"),
    "many folders": (".tar.gz", many_folders, "folder", "must have at most 10,000 files and folders"),
    "cut gzip": (".tar.gz", cut, "model.npz", "cannot be unpacked"),
    "cut xz": (".tar.xz", cut, "model.npz", "cannot be unpacked"),
    "cut bzip2": (".tar.bz2", cut, "model.npz", "cannot be unpacked"),
    "no tar": (".tar.gz", lambda path, name: path.write_bytes(b"x"), "", "cannot be unpacked"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_one_line_and_nothing_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    suffix, write, inside, message = HOSTILE[name]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / f"model{suffix}"
    write(path, inside)
    with pytest.raises(SourceModelError, match="model") as caught, folder_of(path):
        pass
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name]


@pytest.mark.parametrize(
    ("bound", "message"),
    [("MOST_BYTES", "at most 100 bytes when unpacked, has 101"), ("disk_usage", "at most 100 bytes .* are free in /")],
)
def test_too_much_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, message: str
) -> None:
    if bound == "MOST_BYTES":
        monkeypatch.setattr("lingon.importers.archive.MOST_BYTES", 100)
    else:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100))
    monkeypatch.setattr("lingon.importers.archive._write", None)
    with zipfile.ZipFile(tmp_path / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.npz", b"0" * 101)
    with pytest.raises(SourceModelError, match=message), folder_of(tmp_path / "model.zip"):
        pass
