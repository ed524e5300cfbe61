"""Downloads from a real HTTP server that fails in many ways: resumed, verified, whole or not at all."""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from urllib.request import Request

import pytest

from lingon.errors import DownloadError
from lingon.fetching.transfer import CHUNK, Patience, RemoteFile, _SafeRedirects, download, read_small, sha256_of
from tests.support.file_server import Fault, FileServer, serve_files

CONTENT = bytes(range(256)) * 4 * 1024  # 1 MiB, several chunks
DIGEST = hashlib.sha256(CONTENT).hexdigest()
QUICK = Patience(stall=0.5, attempts=3, first_pause=0.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "model.bin").write_bytes(CONTENT)
    with serve_files(tmp_path / "served") as server:
        yield server


def wanted(server: FileServer, tmp_path: Path, *, known: bool = True) -> RemoteFile:
    size, digest = (len(CONTENT), DIGEST) if known else (None, None)
    return RemoteFile(f"{server.url}/model.bin", tmp_path / "here" / "model.bin", size, digest)


def get(file: RemoteFile, patience: Patience = QUICK) -> list[float]:
    """Download a file, and return the pauses that it made instead of making them."""
    pauses: list[float] = []
    download(file, patience=patience, sleep=pauses.append)
    return pauses


def only(file: RemoteFile) -> bool:
    """Whether the file is there whole, and nothing beside it."""
    return sha256_of(file.path) == DIGEST and [path.name for path in file.path.parent.iterdir()] == ["model.bin"]


def test_a_file_is_whole_under_its_name_and_nothing_else_stays(server: FileServer, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    file = wanted(server, tmp_path)
    download(file, progress=lambda *each: seen.append(each), patience=QUICK)
    assert only(file)
    assert seen[-1] == ("model.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_file_that_is_there_is_not_asked_for_again(server: FileServer, tmp_path: Path) -> None:
    file = wanted(server, tmp_path)
    get(file)
    get(file)
    assert len(server.gets("/model.bin")) == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_cut_connection_is_resumed_where_it_ended(server: FileServer, tmp_path: Path, known: bool) -> None:
    server.break_next("/model.bin", Fault(cut=300_000), Fault(cut=100_000))
    file = wanted(server, tmp_path, known=known)
    get(file)
    assert only(file)
    assert server.gets("/model.bin") == ["", "bytes=300000-", "bytes=400000-"]


def test_a_stalled_connection_is_given_up_and_resumed(server: FileServer, tmp_path: Path) -> None:
    server.break_next("/model.bin", Fault(cut=2 * CHUNK, stalled=True))
    file = wanted(server, tmp_path)
    get(file)
    assert only(file)
    assert server.gets("/model.bin") == ["", f"bytes={2 * CHUNK}-"]


def test_a_later_call_goes_on_where_an_earlier_one_failed(server: FileServer, tmp_path: Path) -> None:
    server.break_next("/model.bin", Fault(cut=300_000), *[Fault(cut=0)] * (QUICK.attempts))
    file = wanted(server, tmp_path)
    with pytest.raises(DownloadError, match=r"3 times in a row; 300,000 bytes are kept") as raised:
        get(file)
    assert len(str(raised.value).splitlines()) == 1
    assert not file.path.exists()
    get(file)
    assert only(file)
    assert server.gets("/model.bin")[-1] == "bytes=300000-"


def test_a_download_goes_on_as_long_as_each_connection_brings_bytes(server: FileServer, tmp_path: Path) -> None:
    server.break_next("/model.bin", *[Fault(cut=50_000)] * (3 * QUICK.attempts))
    file = wanted(server, tmp_path)
    get(file)
    assert only(file)
    assert len(server.gets("/model.bin")) == 3 * QUICK.attempts + 1


def test_a_file_without_a_length_is_read_to_its_end_and_not_beyond_its_size(server: FileServer, tmp_path: Path) -> None:
    server.lengths = False
    server.break_next("/model.bin", Fault(content=CONTENT + b"more"))
    file = wanted(server, tmp_path)
    with pytest.raises(DownloadError, match=r"must have at most 1,048,576 bytes, the server sends more"):
        get(file)
    server.lengths = True
    get(file)
    assert only(file)
    server.lengths = False
    unknown = RemoteFile(f"{server.url}/model.bin", tmp_path / "there" / "model.bin")
    get(unknown)
    assert only(unknown)


def test_a_server_without_ranges_sends_the_file_again(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    server.break_next("/model.bin", Fault(cut=300_000))
    file = wanted(server, tmp_path)
    get(file)
    assert only(file)


def test_bytes_of_an_earlier_version_are_not_mixed_with_those_of_a_later_one(
    server: FileServer, tmp_path: Path
) -> None:
    """Without a digest the ETag tells the versions apart."""
    server.break_next("/model.bin", Fault(cut=300_000, content=bytes(len(CONTENT))))
    file = wanted(server, tmp_path, known=False)
    get(file)
    assert only(file)


def test_without_a_digest_and_a_version_a_file_is_not_resumed(server: FileServer, tmp_path: Path) -> None:
    server.tags = False
    server.break_next("/model.bin", Fault(cut=300_000, content=bytes(len(CONTENT))))
    file = wanted(server, tmp_path, known=False)
    get(file)
    assert only(file)
    assert server.gets("/model.bin") == ["", ""]


def test_wrong_bytes_are_refused_and_not_kept(server: FileServer, tmp_path: Path) -> None:
    server.break_next("/model.bin", Fault(content=bytes(len(CONTENT))))
    file = wanted(server, tmp_path)
    with pytest.raises(DownloadError, match=f"is not the file that was expected.*must have .*{DIGEST}"):
        get(file)
    assert list(file.path.parent.iterdir()) == []


def test_a_resumed_file_with_wrong_first_bytes_is_downloaded_once_more(server: FileServer, tmp_path: Path) -> None:
    server.tags = False
    server.break_next("/model.bin", Fault(cut=300_000, content=bytes(len(CONTENT))), *[Fault(cut=0)] * 3)
    file = wanted(server, tmp_path)
    with pytest.raises(DownloadError):
        get(file)
    get(file)
    assert only(file)
    assert server.gets("/model.bin")[-2:] == ["bytes=300000-", ""]


def test_a_file_of_another_size_is_refused_before_it_is_read(server: FileServer, tmp_path: Path) -> None:
    server.break_next("/model.bin", Fault(content=CONTENT + b"more"))
    with pytest.raises(DownloadError, match=r"must have 1,048,576 bytes, the server has 1,048,580"):
        get(wanted(server, tmp_path))


def test_a_file_that_is_missing_is_one_line_at_once(server: FileServer, tmp_path: Path) -> None:
    file = RemoteFile(f"{server.url}/none.bin", tmp_path / "none.bin", 1, DIGEST)
    with pytest.raises(DownloadError, match=r"/none.bin: the server answers 404 Not Found"):
        get(file)
    assert server.gets("/none.bin") == [""]


def test_the_pause_that_a_busy_server_asks_for_is_made(server: FileServer, tmp_path: Path) -> None:
    server.break_next("/model.bin", Fault(status=429, headers={"Retry-After": "7"}), Fault(status=503))
    file = wanted(server, tmp_path)
    assert get(file, Patience(first_pause=2.0)) == [7.0, 4.0]
    assert only(file)


def test_the_pause_may_be_a_time_of_day(server: FileServer, tmp_path: Path) -> None:
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    server.break_next("/model.bin", Fault(status=429, headers={"Retry-After": then}))
    (pause,) = get(wanted(server, tmp_path))
    assert 0 <= pause <= 100


def test_a_pause_that_is_too_long_is_one_line(server: FileServer, tmp_path: Path) -> None:
    server.break_next("/model.bin", Fault(status=429, headers={"Retry-After": "3600"}))
    with pytest.raises(DownloadError, match=r"asks to wait 3,600 seconds, more than 300"):
        get(wanted(server, tmp_path))


def test_a_redirect_is_followed_with_the_range(server: FileServer, tmp_path: Path) -> None:
    place = Fault(status=302, headers={"Location": f"{server.url}/model.bin"})
    server.break_next("/moved.bin", place, place)
    server.break_next("/model.bin", Fault(cut=300_000))
    file = RemoteFile(f"{server.url}/moved.bin", tmp_path / "here" / "model.bin", len(CONTENT), DIGEST)
    get(file)
    assert only(file)
    assert server.gets("/model.bin") == ["", "bytes=300000-"]


def test_a_redirect_from_https_to_http_is_refused() -> None:
    request = Request("https://models.example/model.bin")
    with pytest.raises(DownloadError, match=r"redirects from https to http://models\.example/x, which is not safe"):
        _SafeRedirects().redirect_request(request, None, 302, "Found", {}, "http://models.example/x")
    followed = _SafeRedirects().redirect_request(request, None, 302, "Found", {}, "https://other.example/x")
    assert followed is not None
    assert followed.full_url == "https://other.example/x"


def test_a_host_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    with serve_files(tmp_path / "served") as server:
        url = f"{server.url}/model.bin"
    with pytest.raises(DownloadError, match=r"cannot be reached \(.*\), 3 times in a row"):
        get(RemoteFile(url, tmp_path / "model.bin"))


def test_a_file_that_the_disk_has_no_room_for_is_refused_before_it_is_read(server: FileServer, tmp_path: Path) -> None:
    file = RemoteFile(f"{server.url}/model.bin", tmp_path / "here" / "model.bin", None, DIGEST)
    server.break_next("/model.bin", Fault(status=206, headers={"Content-Range": f"bytes 0-{2**60}/{2**60}"}))
    with pytest.raises(DownloadError, match=r"needs 1,152,921,504,606,846,976 bytes in .*, which has [\d,]+ free"):
        get(file)


def test_a_disk_that_gets_full_is_one_line_and_the_bytes_so_far_are_kept(server: FileServer, tmp_path: Path) -> None:
    file = wanted(server, tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limits[1]))
    try:
        with pytest.raises(
            DownloadError, match=r"cannot be written \(File too large\); [\d,]+ bytes are kept"
        ) as raised:
            get(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(str(raised.value).splitlines()) == 1
    assert not file.path.exists()
    get(file)
    assert only(file)
    assert server.gets("/model.bin")[-1].startswith("bytes=")


def test_a_small_file_is_bounded(server: FileServer) -> None:
    assert read_small(f"{server.url}/model.bin", len(CONTENT)) == CONTENT
    with pytest.raises(DownloadError, match="must have at most 1,000 bytes"):
        read_small(f"{server.url}/model.bin", 1000)
