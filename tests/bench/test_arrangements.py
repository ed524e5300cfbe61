"""Strings of all forms in all arrangements and formats: a sample of the measurement, and what it finds wrong."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from lingon.bench.tools.arrangements import (
    ARRANGEMENTS,
    BEAMS,
    CLOSING,
    FORMATS,
    FORMS,
    OPENING,
    Batch,
    Case,
    Fault,
    Format,
    are_found,
    batches,
    case_of,
    fault_of,
    is_found,
    main,
    random_string,
    summed,
)
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.serving.in_process import LocalTranslator
from lingon.training.config import load_config
from lingon.training.corpus import read_pairs
from tests.support.random_models import random_checkpoint
from tests.support.repository import ROOT, scaled
from tests.support.training_runs import tiny_config_text, write_digit_corpus

FP32 = ExportSettings(precisions=("fp32",), shortlist=None, parity_sentences=2)
NAMED = dict(zip("[{]}", OPENING + CLOSING, strict=True))


def text_of(written: str) -> str:
    """A text with [b] and {i}, as the characters that stand for tags."""
    return "".join(NAMED.get(character, character) for character in written)


@pytest.fixture(scope="module")
def without_bytes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with random weights that never writes a piece for a byte."""
    folder = tmp_path_factory.mktemp("random")
    write_digit_corpus(folder, pairs=200)
    (folder / "config.toml").write_text(tiny_config_text())
    pairs = list(read_pairs(load_config(folder / "config.toml").data.train[0]))
    checkpoint = random_checkpoint(folder, pairs, byte_pieces=False)
    return export_checkpoint(checkpoint, folder / "digits", ExportTexts(pairs[:40]), FP32).folder


def faults_of(model: Path, every: int) -> tuple[int, list[dict[str, Any]]]:
    """How many cases were tried, of all formats and beams, and what is wrong with some of them."""
    with LocalTranslator(model) as translator:
        sample = islice(batches(len(model.name)), len(FORMATS) * len(BEAMS))
        records = [batch.measured(translator, model.name, every) for batch in sample]
    (total,) = summed(records)["total"]
    return total["cases"], [fault for record in records for fault in record["faults"]]


@pytest.mark.parametrize("pair", ["en-de", "en-fr"])
def test_no_string_is_lost_or_broken_and_no_tag_around_it_moves(pair):
    cases, faults = faults_of(ROOT / "models" / pair, every=scaled(41, 3))
    assert cases > scaled(150, 2_000)
    assert faults == []


def test_nor_by_a_model_without_byte_pieces_that_translates_at_random(without_bytes):
    cases, faults = faults_of(without_bytes, every=scaled(41, 3))
    assert cases > scaled(150, 2_000)
    assert faults == []


def test_each_arrangement_has_its_strings_and_nested_tags():
    rng = random.Random(1)
    strings = "{one}", "{two}"
    for arrangement in ARRANGEMENTS:
        case = case_of(arrangement, strings, rng)
        assert case.strings in (("{one}",), strings)
        assert all(string in case.text for string in case.strings)
        assert fault_of(case, case.text) is None
        assert case.is_tagged == any(bracket in ARRANGEMENTS[arrangement] for bracket in "[{")


@pytest.mark.parametrize("form", FORMS)
def test_random_strings_of_a_form_are_found_as_a_whole_and_differ(form):
    rng = random.Random(form)
    strings = [random_string(form, rng) for _ in range(60)]
    assert all(map(is_found, strings))
    assert len(set(strings)) > 1


def test_a_string_that_is_another_one_beside_a_word_is_no_case():
    assert are_found(Case("see :name now", (":name",)))
    assert not are_found(Case("see a:name now", (":name",)))


@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.name)
def test_texts_come_back_from_their_format_as_they_were(each: Format):
    rng = random.Random(each.name)
    named = [case for seed in range(3) for _, _, case in Batch(each, 1, 0, seed).cases(every=7)]
    texts = [case.text for case in rng.sample(named, min(len(named), 40))]
    assert each.read(each.write(texts)) == texts


@pytest.mark.parametrize(
    ("written", "translated", "fault"),
    [
        ("see [%s] now", "jetzt [%s] sehen", None),
        ("see [%s] now", "jetzt [sehen]", Fault.LOST),
        ("see %s now", "%s %s", Fault.LOST),
        ("see [%s] now", "[%]s", Fault.BROKEN),
        ("see [%s] now", "[jetzt %s]", Fault.MOVED),
        ("see [%s] now", "[jetzt] %s", Fault.MOVED),
        ("see [the %s] now", "[%s] jetzt das", None),
        ("see [{%s}] now", "[{%s} jetzt]", Fault.MOVED),
        ("[see] %s now", "[jetzt %s]", Fault.MOVED),
        ("[see] {%s} now", "[%s] {sehen}", Fault.MOVED),
        ("see [%s] now", "%s [", Fault.TAGS),
        ("[see {%s}] now", "{[%s]}", Fault.MOVED),
        ("[see] %s", "%s", Fault.TAGS),
        ('"[the]" %s', '["das] %s"', Fault.MARKS),
        ("[(the)] %s", "[(das])%s", Fault.MARKS),
    ],
)
def test_each_fault_is_found(written, translated, fault):
    assert fault_of(Case(text_of(written), ("%s",)), text_of(translated)) is fault


def test_a_format_in_parts_is_no_fault_where_elements_are_formats():
    case = Case(text_of("see [%s] now"), ("%s",))
    assert fault_of(case, text_of("[%s ]jetzt [sehen]"), exact=False) is None
    assert fault_of(case, text_of("[%s ]jetzt [sehen]")) is Fault.TAGS


def test_a_batch_is_the_same_each_time_and_others_have_other_strings():
    first, again, other = (list(Batch(FORMATS[1], 1, number, 0).cases(every=5)) for number in (0, 0, 1))
    assert first == again
    assert [case for _, _, case in first] != [case for _, _, case in other]


def test_a_measurement_goes_on_where_it_was_ended_and_counts_all(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main([ROOT / "models" / "en-de"], cases=10, every=100, results=tmp_path)
    assert "of 10 cases" in capsys.readouterr().err
    (path,) = tmp_path.glob("*-arrangements.json")
    saved = json.loads(path.read_text())
    assert saved["rows"][0]["cases"] >= 10
    assert {"machine", "command", "date", "faults"} <= saved.keys()
