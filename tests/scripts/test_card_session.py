"""The session on a machine with a card: rehearsed on a machine without one, and its stages as processes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.card_script import on_card
from tests.support.repository import ROOT

SPEC = importlib.util.spec_from_file_location("card_session", ROOT / "scripts" / "card_session.py")
assert SPEC is not None
assert SPEC.loader is not None
card_session: Any = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = card_session
SPEC.loader.exec_module(card_session)


@pytest.mark.native
@pytest.mark.triton
@pytest.mark.timeout(1100)  # an interpreter runs the kernels
def test_the_session_is_rehearsed_with_an_emulated_card(tmp_path: Path):
    """Every kernel loads, one test of kernels runs by the driver, sentences are compared, and the table is measured."""
    options = "--rehearse", "--train", "", "--cache", tmp_path / "cache", "--minutes", "60"
    done = on_card(tmp_path / "out", "session", *options, seconds=1000, LIMIT="1000")
    assert done.returncode == 0, done.stdout
    found = json.loads((tmp_path / "out" / "session.json").read_text(encoding="utf-8"))
    assert {name: each["passed"] for name, each in found.items()} == dict.fromkeys(
        ("kernels", "company", "memory", "table"), True
    )
    assert found["kernels"]["result"]["kernels"] > 50
    assert found["company"]["result"]["differences"] == []
    (table,) = (tmp_path / "out").glob("*-gpu.json")
    native, loop = json.loads(table.read_text(encoding="utf-8"))["rows"]
    assert (native["engine"], loop["engine"]) == ("lingon-native", "torch-graph")
    assert min(native[f"{part}_ms"] for part in ("encoder", "steps", "host")) > 0
    assert native["kernels_a_step"] > 0
    again = on_card(tmp_path / "out", "session", *options)
    assert (again.returncode, "==" in again.stdout.partition("\n")[2]) == (0, False)


def session_of(folder: Path, **changes: Any) -> Any:
    folder.mkdir(exist_ok=True)
    options = {"folder": folder, "cache": folder / "cache", "minutes": 1.0, "train": "", "rehearse": True}
    return card_session.Session(**{**options, **changes})


def stage(name: str, code: str, seconds: float = 20, **options: Any) -> Any:
    return card_session.Stage(name, seconds, lambda session: [sys.executable, "-c", code], **options)


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "session.json").read_text(encoding="utf-8"))
    return found


def test_a_stage_that_is_done_is_not_run_again(tmp_path: Path):
    first = stage("first", "import pathlib; pathlib.Path('%s').open('a').write('x')" % (tmp_path / "runs"))
    for _ in range(2):
        assert card_session.run_session(session_of(tmp_path), [first]) == 0
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "x"


def test_a_stage_that_fails_lets_the_next_ones_run_and_leaves_its_last_lines(tmp_path: Path):
    stages = [stage("bad", "print('result: {\"n\": 3}'); raise SystemExit('no card')"), stage("good", "pass")]
    assert card_session.run_session(session_of(tmp_path), stages) == 1
    found = results(tmp_path)
    assert (found["bad"]["passed"], found["bad"]["result"], found["good"]["passed"]) == (False, {"n": 3}, True)
    assert "no card" in found["bad"]["last lines"]


def test_a_stage_that_can_go_on_is_not_done_at_its_limit(tmp_path: Path):
    waits = "import time; time.sleep(60)"
    stages = [stage("table", waits, 0.5, resumed=True), stage("next", "pass")]
    assert card_session.run_session(session_of(tmp_path), stages) == card_session.CUT_OFF
    assert list(results(tmp_path)) == ["next"]


def test_a_stage_that_hangs_is_ended_and_has_failed(tmp_path: Path):
    assert card_session.run_session(session_of(tmp_path), [stage("hangs", "import time; time.sleep(60)", 0.5)]) == 1
    assert results(tmp_path)["hangs"]["ended"]


def test_no_stage_begins_when_the_time_is_over(tmp_path: Path):
    assert card_session.run_session(session_of(tmp_path, minutes=0), [stage("late", "pass")]) == card_session.CUT_OFF
    assert not (tmp_path / "session.json").exists()


def test_the_cells_of_the_table_are_copied_as_they_are_measured_and_go_on_on_another_machine(tmp_path: Path):
    session = session_of(tmp_path / "one")
    part = session.cache / card_session.PART
    measures = (
        f"import pathlib; p = pathlib.Path('{part}'); p.parent.mkdir(exist_ok=True); p.open('a').write('cell\\n')"
    )
    card_session.run_session(session, [stage("table", measures)])
    assert (session.folder / card_session.PART).read_text(encoding="utf-8") == "cell\n"
    other = session_of(tmp_path / "two")
    (session.folder / card_session.PART).rename(other.folder / card_session.PART)
    card_session.run_session(other, [stage("table", measures.replace("one", "two"))])
    assert (other.folder / card_session.PART).read_text(encoding="utf-8") == "cell\ncell\n"


def test_the_last_stage_trains_a_model_that_ships(tmp_path: Path):
    train = card_session.STAGES[-1]
    command = train.command(session_of(tmp_path, train="configs/en-de.toml"))
    assert command[2:] == [
        "lingon",
        "train",
        "configs/en-de.toml",
        "--output",
        str(tmp_path / "cache" / "runs" / "en-de"),
    ]
