"""`lingon bench attention`: the whole command on sample sentences, how it resumes, and what it compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from lingon.bench.attention import CORPORA, SYSTEMS, Budget, Translations, joined, rows_by_length, selected
from lingon.bench.attention_report import cells, draw
from lingon.bench.cli import attention
from lingon.errors import SettingsError
from lingon.training.config import load_config
from tests.support.repository import ROOT

CONFIGS = ROOT / "configs" / "attention"
SCORES = {"bleu", "chrf", "signatures", "parameters", "decoding_tokens_per_second", "aer", "aer_pairs"}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def compare(work: Path, **options: Any) -> dict[str, Any]:
    """What a trial run writes."""
    results = work / "results"
    attention(quick=True, work=work, configs=CONFIGS, results=results, device="cpu", train=True, **options)
    (path,) = results.glob("*-attention.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def finished(work: Path) -> dict[str, Any]:
    """The results of a trial run in `work`."""
    return compare(work, lengths=True)


def test_each_system_is_trained_alike_and_has_every_figure(finished: dict[str, Any]) -> None:
    rows = finished["rows"]
    assert [(row["corpus"], row["system"]) for row in rows] == [("multi30k", "rnnenc"), ("multi30k", "transformer")]
    assert all(row.keys() >= SCORES for row in rows)
    assert len({row["training_target_tokens"] for row in rows}) == 1
    assert {row["training_steps"] for row in rows} == {12}
    assert all(row["decoding_tokens_per_second"] > 0 for row in rows)


def test_only_a_system_with_attention_has_word_alignments(finished: dict[str, Any]) -> None:
    without, attending = finished["rows"]
    assert (without["aer"], without["aer_pairs"]) == (None, 0)
    assert 0 <= attending["aer"] <= 1
    assert (attending["aer_pairs"], len(attending["aer_heads"])) == (6, 2)
    assert [cells(row)[-1] for row in finished["rows"]] == ["-", f"{attending['aer']:.3f}"]


def test_the_texts_of_every_length_have_a_score_of_each_system(finished: dict[str, Any], work: Path) -> None:
    found = finished["lengths"]
    assert {(row["system"], row["trained_up_to"]) for row in found} == {("rnnenc", 15), ("transformer", 15)}
    assert all(row["words"][0] + 9 == row["words"][1] and row["texts"] > 0 for row in found)
    (chart,) = (work / "results").glob("*-bleu-by-length.svg")
    assert "<svg" in chart.read_text()


def test_the_same_command_makes_nothing_twice(finished: dict[str, Any], work: Path) -> None:
    def files() -> dict[Path, int]:
        made = [path for path in work.rglob("*") if not path.is_relative_to(work / "results") and path.is_file()]
        return {path: path.stat().st_mtime_ns for path in made if not path.is_relative_to(work / "samples")}

    before = files()
    again = compare(work, lengths=True)
    assert files() == before
    assert (again["rows"], again["lengths"]) == (finished["rows"], finished["lengths"])


def test_a_system_without_a_checkpoint_is_left_out_and_the_others_are_measured(
    finished: dict[str, Any], work: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"quick": True, "configs": CONFIGS, "device": "cpu", "lengths": False}
    with pytest.raises(typer.Exit):
        attention(work=work, results=tmp_path, train=False, system=["rnnsearch", "transformer"], **options)
    (path,) = tmp_path.glob("*-attention.json")
    found = json.loads(path.read_text())
    assert [row["system"] for row in found["rows"]] == ["transformer"]
    (line,) = found["left_out"]
    assert line.startswith("multi30k rnnsearch is left out: ")


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_every_system_has_the_same_budget_of_each_corpus(system: Any, tmp_path: Path) -> None:
    for corpus in CORPORA:
        changes = [*system.changes, *Budget().overrides(corpus, tmp_path, "cpu")]
        config = load_config(CONFIGS / f"{system.config}.toml", changes)
        other = load_config(CONFIGS / "transformer.toml", Budget().overrides(corpus, tmp_path, "cpu"))
        assert (config.data, config.tokenizer, config.training) == (other.data, other.tokenizer, other.training)


def test_joined_texts_have_every_sentence_once_and_no_more_words_than_the_longest() -> None:
    pairs = [(" ".join([f"s{number}"] * (number % 9 + 1)), f"t{number}") for number in range(200)]
    texts = list(joined(pairs, 15))
    assert sorted(" ".join(target for _, target in texts).split()) == sorted(target for _, target in pairs)
    lengths = [len(source.split()) for source, _ in texts]
    assert max(lengths) == 15
    assert min(lengths) < 4
    for source, target in texts:
        assert [f"t{name[1:]}" for name in dict.fromkeys(source.split())] == target.split()


def test_sentences_longer_than_the_longest_text_are_left_out() -> None:
    assert list(joined([("a b c", "x"), ("d", "y")], 2)) == [("d", "y")]


def test_a_bucket_has_the_score_of_its_own_texts() -> None:
    right, wrong = "the cat sat on the mat", "x"
    found = rows_by_length(Translations([" ".join("a" * 10), " ".join("a" * 11)], [right, wrong], [right, right]))
    assert [(row["words"], row["texts"]) for row in found] == [([1, 10], 1), ([11, 20], 1)]
    assert (found[0]["bleu"], found[1]["bleu"]) == (100.0, 0.0)


def test_the_chart_has_a_line_for_each_system_and_length_of_training_texts(tmp_path: Path) -> None:
    rows = [
        {"system": system, "trained_up_to": words, "words": [first, first + 9], "bleu": 10.0, "texts": 5}
        for system in ("rnnenc", "rnnsearch", "transformer")
        for words in (15, 30)
        for first in (1, 11)
    ]
    draw(rows, tmp_path / "chart.svg")
    text = (tmp_path / "chart.svg").read_text()
    assert all(f"{row['system']}, up to {row['trained_up_to']}" in text for row in rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"system": ["marian"]}, "--system must be one of rnnenc, .*, got 'marian'"),
        ({"corpus": ["europarl"]}, "--corpus must be one of multi30k, tatoeba, got 'europarl'"),
        ({"steps": 9}, "--steps must be at least 10, got 9"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        attention(quick=True, work=tmp_path, **options)


def test_names_are_selected_in_the_order_of_the_plan() -> None:
    assert selected(["b", "a"], ("a", "b", "c"), "--x") == ("a", "b")
    assert selected(None, ("a", "b"), "--x") == ("a", "b")
