"""The tools of the benchmarks: a step, a call, comparison of running servers, and protected strings."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from lingon import Model
from lingon.bench.tools.compare_servers import one_round, target
from lingon.bench.tools.one_call import measure
from lingon.bench.tools.protection import KINDS, POSITIONS, usable_pairs
from lingon.segments.protection import find_protected
from lingon.serving.engine.worker import Worker
from tests.support import shipped_model
from tests.support.echo_engine import EchoRunner, running
from tests.support.random_models import VOCAB, random_model, written_bundle
from tests.support.tokenizers import train_sentencepiece


def test_the_time_of_the_host_is_measured_for_greedy_and_beam_search(tmp_path: Path):
    command = [sys.executable, "-m", "lingon.bench.tools.host_step", "--quick", "--results", tmp_path]
    subprocess.run(command, capture_output=True, check=True, timeout=200)
    (path,) = tmp_path.glob("*-host-step.json")
    found = {
        (row["sentences"], row["beam_size"]): row["host_us"]
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
    }
    assert found.keys() == {(1, 1), (1, 4), (8, 1), (8, 4)}
    assert all(microseconds > 0 for microseconds in found.values())


def test_a_call_takes_time_in_steps_and_beside_them(tmp_path: Path):
    letters = "abcdefghijklmnopqrstuvwxyz"
    lines = [f"{letters[place:]} {letters[:place]} {first}{letters[place]}" for place in range(26) for first in letters]
    files = {"tokenizer.model": train_sentencepiece(lines, VOCAB)}
    step, bundle = Worker.step, written_bundle(random_model(), tmp_path, files=files)
    with Model(bundle.folder, engines=1, threads=1) as model:
        costs = measure(model, ["a new ship", "the old sea"], beam_size=1, rounds=2)
    assert len(costs) == 2
    assert all(each.steps > 0 and each.beside > 0 for each in costs)
    assert Worker.step is step


@pytest.mark.parametrize("stream", [False, True])
async def test_running_servers_are_compared_by_latency_and_cpu_time(stream: bool) -> None:
    async with running(EchoRunner()) as server:
        here = target(f"here={os.getpid()}@127.0.0.1:{server.server.port}")
        row = await one_round(here, ["Tom", "sea"], 2, 0.3, stream=stream)
    assert row["requests_per_s"] > 0
    assert row["p50_ms"] <= row["p99_ms"]
    assert row["cpu_ms_per_request"] > 0
    assert (row["cpu_us_per_delta"] > 0) is stream


PAIR = ("I saw Tom at home.", "Ich sah Tom daheim.")


@pytest.mark.parametrize(("place", "make", "count"), POSITIONS)
def test_a_case_has_its_strings_once_and_each_is_found(place, make, count):
    case = make(PAIR, ["Tom", "Boston"], KINDS[:count], random.Random(0))
    assert case.strings == KINDS[:count]
    assert [case.text[begin:end] for begin, end, _ in find_protected(case.text)] == sorted(
        case.strings, key=case.text.index
    )
    assert case.reference is None or case.strings[0] in case.reference


def test_pairs_have_the_name_once_on_both_sides():
    others = [
        ("Tom saw Tom at home.", "Tom sah Tom."),
        ("I saw Tom's old car.", "Ich sah Toms Auto."),
        ("Tom!", "Tom!"),
    ]
    assert usable_pairs([PAIR, *others], "Tom") == [PAIR]


def test_a_server_of_many_models_is_measured(tmp_path: Path) -> None:
    tool = [sys.executable, "-m", "lingon.bench.tools.many_models", str(shipped_model.bundle().folder)]
    few = ["--count", "3", "--model-memory", "100", "--measured", "2", "--rounds", "1", "--seconds", "0.2"]
    subprocess.run([*tool, *few, "--results", str(tmp_path)], capture_output=True, check=True, timeout=200)
    (path,) = tmp_path.glob("*-many-models-*.json")
    rows = {row["measured"]: row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
    assert rows["first call"]["cpu_ms"] > 0
    assert rows["warm model, no load"]["calls"] > 0
    assert rows["with loaded models"]["anonymous_mib"] > rows["3 cold models"]["anonymous_mib"]


def test_the_check_of_second_answers_is_measured(tmp_path: Path) -> None:
    data = shipped_model.ROOT / "tests" / "data"
    texts = [data / "tatoeba.en", data / "tatoeba.de"]
    command = [sys.executable, "-m", "lingon.bench.tools.second_check", shipped_model.MODEL, *texts, "--count", "60"]
    subprocess.run([*command, "--results", tmp_path], capture_output=True, check=True, timeout=200)
    (path,) = tmp_path.glob("*-second-check-en-de.json")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["check"] for row in rows[:2]] == ["at least -3.5", "after 0 rejected"]
    assert rows[0]["lies"] >= 50
    for column, better in (("good_rejected", 1), ("lies_taken", -1)):  # a stricter check loses more and takes less
        found = [better * row[column] for row in rows[1:]]
        assert found == sorted(found)
    assert rows[-1]["lies_taken"] < 5
    assert rows[1]["good_rejected"] < 20


def test_the_check_of_second_answers_needs_pairs_of_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lingon.bench.tools.second_check", shipped_model.MODEL, tmp_path]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "texts must be pairs of files, got 1 files" in found.stderr
