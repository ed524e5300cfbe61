"""The pages about live translation: the talk is what a server answers, and the tables have every measured row."""

from __future__ import annotations

import json
from itertools import islice

from docs.generators import live
from docs.generators.results import RESULTS
from lingon import Model
from scripts.live_talk import read_record, read_talk, speak
from tests.support.shipped_model import MODEL

ANSWERS = 60  # to the words of four sentences


def rows(table: str) -> list[list[str]]:
    """Return the cells of the lines of tables."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:2] == "| "]


def test_the_talk_is_what_the_model_answers():
    record, words = read_record(), read_talk()
    with Model(MODEL, device="cpu", threads=1) as model, model.live(policy="alignment", lag_words=record.lag) as spoken:
        answers = list(islice(speak(spoken, words), ANSWERS))
        assert f"{spoken.ready.model}/{spoken.ready.version}" == record.model
    assert answers == record.answers[:ANSWERS]


def test_the_record_has_the_whole_talk_and_each_answer_is_a_line_of_the_page():
    record, words = read_record(), read_talk()
    assert " ".join(each.words for each in record.answers if each.words).split() == [word.text for word in words]
    assert [each.ms for each in record.answers] == sorted(each.ms for each in record.answers)
    assert all(not each.tentative for each in record.answers if each.is_complete)
    lines = rows(live.talk())[2:]
    assert len(lines) == len(record.answers)
    agreed = "".join(each.agreed for each in record.answers)
    assert "".join(agreed.split()) == "".join("".join(line[2].split()) for line in lines)


def test_every_policy_that_was_measured_has_a_line_with_the_figures_of_each_set():
    file = max(RESULTS.glob("????-??-??-live-quality.json"))
    measured, table = json.loads(file.read_text(encoding="utf-8"))["rows"], rows(live.quality())
    sets = list(dict.fromkeys(row["set"] for row in measured))
    assert len(table) - 2 == len(measured) / len(sets)
    for row in measured:
        if "laal_ms" in row:
            figures = [f"{row['bleu']:.1f}", f"{row['laal_ms'] / 1000:.2f}", f"{row['erasure']:.1f}"]
            at = 2 + 3 * sets.index(row["set"])
            assert figures in [line[at : at + 3] for line in table]
    assert file.with_suffix(".svg").name in live.quality()
    assert (RESULTS / file.with_suffix(".svg").name).is_file()


def test_each_load_has_a_line():
    assert [line[:2] for line in rows(live.load())[2:]] == [["tatoeba", "200"], ["ntrex", "200"]]
    assert {line[1] for line in rows(live.states())[2:]} == {"local agreement", "alignment"}
