"""`lingon calibrate --second` with the shipped model, and a second translator on a real socket."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lingon.bench.worker_process import ChildProcess
from lingon.bundle.store import open_bundle
from lingon.cli.main import main
from tests.support.echo_engine import bundle
from tests.support.ports import free_port
from tests.support.repository import ROOT
from tests.support.shipped_model import MODEL

FILES = [str(ROOT / "tests" / "data" / f"tatoeba.{side}") for side in ("en", "de")]


def options(url: str, folder: Path) -> list[str]:
    named = ["--second", url, "--second-model", "stand-in", "--second-output", str(folder)]
    return [*named, "--second-data", *FILES, "--second-lines", "240"]


def test_a_threshold_is_recommended_and_a_second_run_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in open_bundle(MODEL).folder.parent.iterdir())
    with ChildProcess([sys.executable, "-m", "lingon.bench.second_server", *FILES]) as server:
        url = server.read_line().removeprefix("ready: ").strip()
        assert main(["calibrate", str(MODEL), *options(url, tmp_path / "out")]) == 0
    first = capsys.readouterr()
    assert "recommended: --second-below 0." in first.out
    assert "240 sentences with" in first.err
    figures = json.loads((tmp_path / "out" / "second.json").read_text())
    assert figures["all"]["chrf"] > figures["chosen"]["chrf"] > figures["nothing"]["chrf"]
    assert 0.1 < figures["chosen"]["sent"] < 0.3
    assert (tmp_path / "out" / "second.svg").read_text().startswith("<svg")
    assert sorted(path.name for path in open_bundle(MODEL).folder.parent.iterdir()) == before

    nothing = f"http://127.0.0.1:{free_port()}/v1"  # the answers of the first run are enough
    assert main(["calibrate", str(MODEL), *options(nothing, tmp_path / "out")]) == 0
    second = capsys.readouterr()
    assert second.out == first.out
    assert json.loads((tmp_path / "out" / "second.json").read_text())["chosen"] == figures["chosen"]


def test_a_second_translator_that_does_not_listen_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", str(MODEL), *options(f"http://127.0.0.1:{free_port()}/v1", tmp_path / "out")]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("lingon: error: the second translator answered none of ")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["answers.jsonl"]


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("--second-model", "--second needs --second-model"),
        ("--second-output", "--second needs --second-output"),
        ("--second-data", "--second needs --second-data"),
    ],
)
def test_what_second_needs_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left_out: str, message: str
) -> None:
    given = options("http://127.0.0.1:9/v1", tmp_path / "out")
    at = given.index(left_out)
    del given[at : at + (3 if left_out == "--second-data" else 2)]
    assert main(["calibrate", str(MODEL), *given]) == 2
    assert capsys.readouterr().err == f"lingon: error: {message}\n"
    assert not (tmp_path / "out").exists()


def test_a_threshold_and_text_data_are_two_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = options("http://127.0.0.1:9/v1", tmp_path / "out")
    assert main(["calibrate", str(MODEL), *given, "--train-data", *FILES]) == 2
    assert "--second reads --second-data alone" in capsys.readouterr().err
    assert main(["calibrate", str(MODEL)]) == 2
    assert "lingon calibrate needs --train-data, or --second" in capsys.readouterr().err


def test_a_bundle_without_a_confidence_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = bundle(tmp_path / "made")
    assert main(["calibrate", str(made.folder), *options("http://127.0.0.1:9/v1", tmp_path / "out")]) == 2
    assert "has no confidence; lingon calibrate --valid-data gives it one" in capsys.readouterr().err


def test_too_little_text_is_refused_before_anything_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, path in zip(("en", "de"), FILES, strict=True):
        lines = Path(path).read_text(encoding="utf-8").splitlines()[:199]
        (tmp_path / side).write_text("\n".join(lines) + "\n", encoding="utf-8")
    given = options("http://127.0.0.1:9/v1", tmp_path / "out")
    at = given.index("--second-data")
    given[at + 1 : at + 3] = [str(tmp_path / "en"), str(tmp_path / "de")]
    assert main(["calibrate", str(MODEL), *given]) == 2
    assert "--second-data needs 200 lines with text in both files, got 199" in capsys.readouterr().err
