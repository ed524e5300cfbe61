"""Files that verbs read and write: replaced atomically; the lines of a failed run are kept in FILE.part."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.support.scripted_server import FakeService
from tests.support.verbs import Command


def test_files_are_read_and_written(lingon: Command, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt.gz", tmp_path / "out.txt"
    source.write_bytes(gzip.compress("eins\n\nzwölf\n".encode()))
    assert lingon("translate", "--input", source, "--output", target) == (0, "", [])
    assert target.read_text(encoding="utf-8") == "EINS\n\nZWÖLF\n"


def test_an_output_that_ends_in_gz_is_compressed(lingon: Command, tmp_path: Path) -> None:
    assert lingon("translate", "--output", tmp_path / "out.gz", text="one\n\ntwo\n") == (0, "", [])
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == b"ONE\n\nTWO\n"
    assert lingon("score", "--output", tmp_path / "scores", text="a cow\teine Kuh\n") == (0, "", [])
    assert (tmp_path / "scores").read_text() == "-2.5000\n"


def test_a_run_without_output_changes_neither_an_earlier_file_nor_its_part(lingon: Command, tmp_path: Path) -> None:
    out, part = tmp_path / "out", tmp_path / "out.part"
    out.write_text("precious\n")
    part.write_text("of a long run\n")
    code, _, errors = lingon("translate", "--server", "127.0.0.1:1", "--timeout", 1, "--output", out, text="one\n")
    assert (code, len(errors), out.read_text(), part.read_text()) == (1, 1, "precious\n", "of a long run\n")


def test_the_bytes_of_a_compressed_output_do_not_depend_on_the_time(lingon: Command, tmp_path: Path) -> None:
    assert lingon("translate", "--output", tmp_path / "out.gz", text="one\n") == (0, "", [])
    assert (tmp_path / "out.gz").read_bytes()[4:8] == bytes(4), "the time in the header of gzip, RFC 1952"


@pytest.mark.parametrize("name", ["out", "out.gz"])
def test_a_run_that_fails_keeps_its_lines_in_the_part_and_names_it(name: str, lingon: Command, tmp_path: Path) -> None:
    out, part = tmp_path / name, tmp_path / f"{name}.part"
    out.write_text("precious\n")
    out.chmod(0o640)
    code, _, errors = lingon("translate", "--output", out, text=b"one\ntwo\nthr\xe4e\n")
    done = gzip.decompress(part.read_bytes()) if name == "out.gz" else part.read_bytes()
    assert (code, out.read_text(), done) == (1, "precious\n", b"ONE\nTWO\n")
    assert errors[0] == f"lingon: {out} is not complete; the first 2 lines are in {part}"
    assert errors[1].startswith("lingon: error: standard input:3: not UTF-8")
    assert lingon("translate", "--output", out, text="one\n")[0] == 0
    assert (part.exists(), out.stat().st_mode & 0o777) == (False, 0o640)


def test_output_may_be_a_link_or_a_device(lingon: Command, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    for name in (tmp_path / "link", "/dev/null"):
        assert lingon("translate", "--output", name, text="one\n") == (0, "", [])
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "real").read_text()) == (True, "ONE\n")


def test_an_output_in_a_loop_of_links_is_an_error(lingon: Command, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in (tmp_path / "loop", tmp_path / "loop" / "out"):
        code, _, errors = lingon("translate", "--output", name, text="one\n")
        assert (code, errors) == (2, [f"lingon: error: --output {name}: Too many levels of symbolic links"])


def test_an_unrelated_error_does_not_name_the_output_device(lingon: Command) -> None:
    code, _, errors = lingon("translate", "--model", "x", "--output", "/dev/null", "the disk fails")
    assert (code, errors[-1]) == (1, "lingon: error: model.bin: Input/output error")


@pytest.mark.parametrize(("name", "why"), [("none/out", "No such file or directory"), ("folder", "Is a directory")])
def test_an_impossible_output_is_an_error_before_any_request(
    name: str, why: str, lingon: Command, service: FakeService, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    code, _, errors = lingon("translate", "--output", tmp_path / name, text="one\n")
    assert (code, errors) == (2, [f"lingon: error: --output {tmp_path / name}: {why}"])
    assert service.requests == []


def test_the_input_is_never_written_over(lingon: Command, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("precious\n")
    code, _, errors = lingon("translate", "--input", path, "--output", path)
    assert (code, len(errors), path.read_text()) == (2, 1, "precious\n")
