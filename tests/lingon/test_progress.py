"""The progress bar of `lingon translate`: shown on a terminal only if it disturbs no line."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lingon.cli.lines.input import input_lines, input_pairs
from lingon.cli.lines.progress import summary
from tests.support.scripted_server import FakeService
from tests.support.verbs import Command

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
