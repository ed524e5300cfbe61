"""Files that verbs read and write: replaced atomically; the lines of a failed run are kept in FILE.part."""

from __future__ import annotations

import gzip
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lingon.cli.input import input_lines, input_pairs
from lingon.cli.lines import LineColumns, plain_line, score_line
from lingon.cli.output import summary
from lingon.client.results import Link, ScoreResult, TextResult, Token, Translation
from tests.support.scripted_server import Command, FakeService


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


LINES = "".join(f"line {number}\n" for number in range(40))
BAR = re.compile(rb"\d+ lines, [\d.]+ lines/s")


def on_a_terminal(lingon: Command, *arguments: object, text: str = LINES, **streams: object) -> tuple[int, bytes]:
    """Run the command with a terminal as standard error; returns the exit code and what the terminal showed."""
    terminal, slave = pty.openpty()
    environment = {**lingon.environment, "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "lingon", *map(str, arguments)]
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **streams}
    given = {name: slave if stream == "terminal" else stream for name, stream in given.items()}
    with subprocess.Popen(command, env=environment, stderr=slave, **given) as process:  # type: ignore[call-overload]
        os.close(slave)
        if process.stdin is not None:
            process.stdin.write(text.encode())
            process.stdin.close()
        shown = read_all(terminal)
    return process.returncode, shown


def read_all(terminal: int) -> bytes:
    shown = b""
    with open(terminal, "rb", buffering=0) as file:
        try:
            while chunk := file.read(4096):
                shown += chunk
        except OSError:  # Linux reports the end of a terminal as EIO
            pass
    return shown


@pytest.fixture
def slow(service: FakeService) -> None:
    """Requests take so long that a bar appears."""
    service.delay = 0.6


@pytest.mark.usefixtures("slow")
def test_a_bar_shows_lines_rate_and_time_left(lingon: Command, tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text(LINES)
    code, shown = on_a_terminal(lingon, "translate", "--batch-size", 4, "--input", source, "--output", output)
    assert (code, output.read_text()) == (0, LINES.upper())
    assert re.search(rb"\d+ lines, [\d.]+ lines/s, 0:00:0\d left", shown)
    assert b"40 lines" in shown


@pytest.mark.usefixtures("slow")
def test_a_bar_is_shown_if_standard_output_is_a_file(lingon: Command, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as output:
        code, shown = on_a_terminal(lingon, "translate", "--batch-size", 4, stdout=output)
    assert (code, (tmp_path / "out").read_text()) == (0, LINES.upper())
    assert BAR.search(shown)


@pytest.mark.usefixtures("slow")
def test_scoring_shows_a_bar_too(lingon: Command, tmp_path: Path) -> None:
    for name in ("source", "target"):
        (tmp_path / name).write_text(LINES)
    files = ["--source", tmp_path / "source", "--target", tmp_path / "target", "--output", tmp_path / "out"]
    code, shown = on_a_terminal(lingon, "score", "--batch-size", 4, *files)
    assert code == 0
    assert re.search(rb"\d+ lines, [\d.]+ lines/s, 0:00:0\d left", shown)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("stdout", [subprocess.PIPE, "terminal"], ids=["pipe", "terminal"])
def test_no_bar_is_shown_if_results_go_to_a_pipe_or_to_the_terminal(stdout: object, lingon: Command) -> None:
    code, shown = on_a_terminal(lingon, "translate", "--batch-size", 4, stdout=stdout)
    assert code == 0
    expected = LINES.upper() if stdout == "terminal" else ""
    assert shown.decode().replace("\r\n", "\n") == expected


@pytest.mark.usefixtures("slow")
def test_no_bar_is_shown_if_standard_error_is_a_pipe(lingon: Command, tmp_path: Path) -> None:
    assert lingon("translate", "--batch-size", 4, "--output", tmp_path / "out", text=LINES) == (0, "", [])


@pytest.mark.usefixtures("slow")
def test_no_bar_is_shown_while_lines_are_typed(lingon: Command, tmp_path: Path) -> None:
    keyboard, typed = pty.openpty()
    os.write(keyboard, b"one\n" * 12 + b"\x04")
    code, shown = on_a_terminal(lingon, "translate", "--batch-size", 1, "--output", tmp_path / "out", stdin=typed)
    os.close(typed)
    os.close(keyboard)
    assert (code, shown, (tmp_path / "out").read_text()) == (0, b"", "ONE\n" * 12)


@pytest.mark.usefixtures("slow")
def test_messages_about_lines_stand_above_the_bar(lingon: Command, tmp_path: Path) -> None:
    code, shown = on_a_terminal(
        lingon, "translate", "--batch-size", 4, "--output", tmp_path / "out", text=f"{LINES}bad\n"
    )
    assert code == 1
    lines = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).replace(b"\r", b"\n").split(b"\n")
    assert b"lingon: line 41: too many tokens" in lines


def test_a_quick_run_shows_nothing(lingon: Command, tmp_path: Path) -> None:
    assert on_a_terminal(lingon, "translate", "--output", tmp_path / "out", text="one\n") == (0, b"")


def test_the_time_left_is_that_of_the_bytes_left() -> None:
    assert summary(1200, 60.0, 1000, 3000) == "1,200 lines, 20.0 lines/s, 0:02:00 left"
    assert summary(1200, 60.0, 1000, None) == "1,200 lines, 20.0 lines/s"
    assert summary(10, 1.0, 100, 100) == "10 lines, 10.0 lines/s, 0:00:00 left"


def test_the_size_of_an_input_is_known_for_files_and_arguments(tmp_path: Path) -> None:
    for name in ("a", "b", "b.gz"):
        (tmp_path / name).write_text("eins\nzwölf\n", encoding="utf-8")
    assert input_lines(["eins", "zwölf"], None, None).size == 12
    assert input_lines([], tmp_path / "a", None).size == 12
    assert input_lines([], tmp_path / "b.gz", None).size is None
    assert input_pairs(tmp_path / "a", tmp_path / "b", None).size == 24


WANTED = LineColumns(alignment=True)


def test_words_of_a_translation_are_counted_as_the_model_wrote_it() -> None:
    """A model with byte fallback can write characters that a normalised text never has."""
    links = (Link((0, 2), (0, 3), 1.0), Link((2, 4), (3, 5), 1.0))
    translation = Translation("A\u00adB\tC", -1.0, "end", alignment=links)
    result = TextResult((translation,), normalised_text="ab c")
    assert plain_line(result, WANTED) == "A\u00adB C\t0-0 1-1"


def test_words_of_a_pair_are_counted_in_the_normalised_texts_of_the_server() -> None:
    links = (Link((0, 2), (0, 2), 1.0), Link((2, 4), (2, 4), 1.0))
    tokens = (Token("x", -1.0),)
    result = ScoreResult(-1.0, tokens, links, normalised_source="ab c", normalised_target="AB C")
    assert score_line(result, WANTED) == "-1.0000\t0-0 1-1"
