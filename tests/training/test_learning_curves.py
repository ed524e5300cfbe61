"""The picture of the learning curves: what it shows of a log, what it leaves out, and what it may cost."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lingon.training.learning_curves import MOST_POINTS, TALL, TITLE, TOP, WIDTH, learning_curves, read_log, thinned
from lingon.training.report import Report
from lingon.training.svg import Scale, short_number, ticks
from tests.support.training_runs import log_of, train, write_config

SVG = "{http://www.w3.org/2000/svg}"


def training_line(step: int, **figures: Any) -> dict[str, Any]:
    known = {"loss": 2 + 8 / step, "tokens_per_second": 900.0, "learning_rate": 1e-3 / step, "gradient_norm": 1.0}
    whole = {"epoch": step / 100, "target_tokens": 500.0 * step, "seconds": 60.0 * step}
    return {"kind": "train", "step": step, "time": 0.0, **known, **whole, **figures}


def validation_line(step: int, **figures: Any) -> dict[str, Any]:
    return {"kind": "valid", "step": step, "time": 0.0, "loss": 2.5, "bleu": 20.0, "chrf": 40.0, **figures}


def written(folder: Path, lines: Iterable[dict[str, Any]], torn: str = "") -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + torn)
    return path


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def curves(picture: str) -> list[list[tuple[float, float]]]:
    """Return the points of the curves in pixels."""
    paths = [path for path in ElementTree.fromstring(picture).iter(f"{SVG}path") if "line" in path.attrib["class"]]
    pair = re.compile(r"([\d.-]+) ([\d.-]+)")
    return [[(float(x), float(y)) for x, y in pair.findall(path.attrib["d"])] for path in paths]


LOG = [*map(training_line, range(10, 210, 10)), *map(validation_line, (100, 200))]


def test_a_run_without_validations_has_the_training_curves_alone() -> None:
    shown = texts(learning_curves("run", [line for line in LOG if line["kind"] == "train"]))
    assert {"Loss of a token", "Learning rate", "Target tokens a second"} <= set(shown)
    assert not any("validation" in each or "BLEU" in each for each in shown)
    assert any("validation" in each for each in texts(learning_curves("run", LOG)))


def test_a_log_without_lines_is_a_picture_too() -> None:
    assert curves(learning_curves("run", [])) == []


def test_all_points_of_all_curves_are_inside_the_picture() -> None:
    log = [*LOG, training_line(210, loss=1e6, tokens_per_second=0.0), validation_line(210, bleu=0.0, chrf=100.0)]
    picture = learning_curves("run", log)
    height = float(ElementTree.fromstring(picture).attrib["height"])
    assert len(curves(picture)) == 6
    assert all(0 < x < WIDTH and 0 < y < height for points in curves(picture) for x, y in points)


def test_a_loss_that_is_high_at_its_beginning_leaves_the_room_to_the_rest_and_stays_in_its_panel() -> None:
    losses = [900.0, 3.0, 800.0, *(3.0 - step / 100 for step in range(97))]
    first, *later = curves(
        learning_curves("run", [training_line(10 * at + 10, loss=each) for at, each in enumerate(losses)])
    )
    top, bottom = min(y for _, y in first), max(y for _, y in first)
    assert len(first) == 99
    assert first[1][1] == top >= TOP + TITLE
    assert bottom - first[0][1] > TALL / 2
    assert later


def test_the_curve_of_the_learning_rate_falls_where_the_rate_falls() -> None:
    rates = curves(learning_curves("run", LOG))[-2]
    assert [x for x, _ in rates] == sorted(x for x, _ in rates)
    assert [y for _, y in rates] == sorted(y for _, y in rates), "pixels are counted from the top"


def test_the_best_checkpoint_and_the_stages_that_have_begun_are_named() -> None:
    shown = texts(learning_curves("run", LOG, 100, [50, 120, 5000]))
    assert "best: 100" in shown
    assert [each for each in shown if each.startswith("stage")] == ["stage 2", "stage 3"]
    assert not any(each.startswith(("best", "stage")) for each in texts(learning_curves("run", LOG)))


def test_the_second_axis_has_the_time_of_the_updates() -> None:
    timed = [training_line(step, seconds=36.0 * step) for step in range(100, 1100, 100)]
    shown = texts(learning_curves("run", timed))
    assert "0 hours" in shown
    assert "10" in shown
    untimed = [{key: value for key, value in line.items() if key != "seconds"} for line in timed]
    assert "0 hours" not in texts(learning_curves("run", untimed)), "logs of earlier versions have no seconds"


def test_updates_that_a_resumed_run_repeats_count_once(tmp_path: Path) -> None:
    again = [training_line(30, loss=7.0), training_line(40, loss=7.0)]
    lines = [*map(training_line, range(10, 60, 10)), validation_line(20), *again, validation_line(40)]
    log = read_log(written(tmp_path, lines))
    assert [line["step"] for line in log if line["kind"] == "train"] == [10, 20, 30, 40]
    assert [line["loss"] for line in log if line["kind"] == "train"][2:] == [7.0, 7.0]
    assert [line["step"] for line in log if line["kind"] == "valid"] == [20, 40]


def test_a_torn_line_and_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    lines = [*LOG, training_line(210, loss=None, learning_rate=math.inf)]
    log = read_log(written(tmp_path, lines, torn='{"kind": "tr'))
    loss, rate = (points for number, points in enumerate(curves(learning_curves("run", log))) if number in (0, 4))
    assert len(rate) == len(curves(learning_curves("run", LOG))[4])
    assert max(x for x, _ in loss) < WIDTH - 30


def test_equal_logs_give_equal_bytes(tmp_path: Path) -> None:
    log = read_log(written(tmp_path, LOG))
    assert learning_curves("run", log, 100, [50]) == learning_curves("run", LOG, 100, [50])


def test_a_name_with_markup_is_shown_as_it_is() -> None:
    assert texts(learning_curves("<b>&run", LOG))[0] == "<b>&run"


def test_many_points_become_few_that_begin_and_end_alike() -> None:
    points = [(float(step), step % 2.0) for step in range(10_000)]
    few = thinned(points)
    assert len(few) == MOST_POINTS
    assert (few[0], few[-1]) == (points[0], points[-1])
    assert all(0.2 < value < 0.8 for _, value in few[1:-1])
    assert thinned(points[:100]) == points[:100]


def test_a_long_run_is_drawn_in_less_than_a_second(tmp_path: Path) -> None:
    """A million updates with a line of the log for each 50 took 0.25 s on one core."""
    lines = [*map(training_line, range(50, 1_000_000, 50)), *map(validation_line, range(1000, 1_000_000, 1000))]
    path = written(tmp_path, lines)
    start = time.process_time()
    picture = learning_curves("run", read_log(path))
    assert time.process_time() - start < 1
    assert len(picture) < 200_000


def test_a_run_has_the_picture_of_its_log(corpus: Path) -> None:
    few = {"max_steps": 20, "warmup_steps": 5, "cooldown_steps": 0, "log_every": 5, "valid_every": 10}
    trainer = train(write_config(corpus, training={**few, "valid_sentences": 5}), corpus / "run")
    lines = log_of(corpus / "run", "train")
    assert lines[-1]["target_tokens"] == trainer.progress.target_tokens
    assert lines[-1]["seconds"] == pytest.approx(trainer.progress.seconds)
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)
    shown = texts((corpus / "run" / "curves.svg").read_text())
    assert f"best: {trainer.progress.best_step}" in shown
    assert any(each.startswith("20 updates") for each in shown)


def test_a_picture_that_cannot_be_written_is_one_message_and_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "curves.svg").mkdir()
    with Report(tmp_path, 30, enabled=True) as report:
        for step in (10, 20):
            report.log_training(step, training_line(step))
            report.draw_curves(0, [], at_once=True)
    assert capsys.readouterr().err.count("curves cannot be drawn") == 1


def test_between_validations_a_picture_is_drawn_only_now_and_then(tmp_path: Path) -> None:
    with Report(tmp_path, 30, enabled=True) as report:
        report.log_training(10, training_line(10))
        report.draw_curves(0, [], at_once=False)
        assert (tmp_path / "curves.svg").exists()
        (tmp_path / "curves.svg").unlink()
        report.draw_curves(0, [], at_once=False)
        assert not (tmp_path / "curves.svg").exists()
        report.draw_curves(0, [], at_once=True)
        assert (tmp_path / "curves.svg").exists()


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 20_000), (2.31, 2.37), (1e-6, 1e-3), (-3, 7), (0, 1e9)])
def test_ticks_are_few_round_values_of_the_range(low: float, high: float) -> None:
    found = ticks(low, high, 8)
    assert 3 <= len(found) <= 9
    assert all(low <= each <= high for each in found)
    steps = [after - before for before, after in pairwise(found)]
    assert steps == pytest.approx([steps[0]] * len(steps))
    assert f"{steps[0]:.3e}"[:5] in ("1.000", "2.000", "5.000")


def test_a_scale_maps_its_ends_to_its_ends() -> None:
    scale = Scale(2, 4, 100, 0)
    assert [scale(2), scale(3), scale(4)] == [100, 50, 0]
    assert Scale(2, 2, 0, 9)(2) == 0


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (950, "950"), (12_345, "12.3 k"), (999_999, "1.00 M"), (193e6, "193 M"), (1.93e9, "1.93 B")],
)
def test_a_short_number_has_three_digits(value: float, shown: str) -> None:
    assert short_number(value) == shown
