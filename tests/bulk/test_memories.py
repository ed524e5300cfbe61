"""Bulk translation with files of translation memories: rows that one has, runs that go on, and new pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingon.memories.files import read_segments
from tests.support.bulk import BACKEND, LINES, parts, rows, write_jsonl
from tests.support.processes import lingon

MODEL = ("--model", str(BACKEND.model), "--beam-size", "1")


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "memory.csv"
    path.write_text("".join(f'"{line}",M{number}\n' for number, line in enumerate(LINES[:20:2])))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "in" / "a.jsonl", [*LINES[:30], LINES[0], ""])
    return tmp_path / "in"


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_of_the_memory_have_its_translations_and_the_others_those_of_the_model(
    tmp_path: Path, source: Path, memory: Path, workers: int
) -> None:
    shape = ("--shard-rows", 8, "--workers", workers, "--threads", 1, "--engines", 1)
    lingon("bulk", source, tmp_path / "free", *MODEL, *shape)
    lingon("bulk", source, tmp_path / "out", *MODEL, *shape, "--memory", memory)
    free, found = ([row["translation"] for row in rows(tmp_path / each)] for each in ("free", "out"))
    wanted = free.copy()
    wanted[0:20:2] = [f"M{number}" for number in range(10)]
    wanted[30] = "M0"
    assert found == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_a_row_gets_the_translation_with_its_neighbours_in_the_shard(tmp_path: Path, workers: int) -> None:
    rest = [("Is it closed?", "0"), ("Come in.", "1"), ("File", "2"), ("Save", "3")]
    segments = [*rest, ("Open", "Offen", *(each for each, _ in rest[:2])), ("Open", "Aufmachen", "File", "Save")]
    segments.append(("Open", "Öffnen"))
    rows_of_memory = "".join(",".join([*each, "", ""][:4]) + "\n" for each in segments)
    (tmp_path / "memory.csv").write_text("source,target,before,after\n" + rows_of_memory)
    texts = ["File", "Open", "Save", "Is it closed?", "Open", "Come in.", "Open", "File", "Open", "Save"]
    write_jsonl(tmp_path / "in" / "a.jsonl", texts)
    shape = ("--shard-rows", 9, "--workers", workers, "--threads", 1, "--engines", 1)
    lingon("bulk", tmp_path / "in", tmp_path / "out", *MODEL, *shape, "--memory", tmp_path / "memory.csv")
    found = [row["translation"] for row in rows(tmp_path / "out")]
    assert found == ["2", "Aufmachen", "3", "0", "Offen", "1", "Öffnen", "2", "Öffnen", "3"]


def test_a_sentence_of_a_row_is_from_the_memory_and_the_others_are_as_without_it(tmp_path: Path) -> None:
    (tmp_path / "memory.csv").write_text("source,target\nIt is open.,Es steht offen!\n")
    texts = ["The dog is old. It is open. The house is big.", "It is open. The dog is old.", "The dog is old."]
    write_jsonl(tmp_path / "in" / "a.jsonl", texts)
    for name, options in (("free", ()), ("out", ("--memory", tmp_path / "memory.csv"))):
        lingon("bulk", tmp_path / "in", tmp_path / name, *MODEL, *options)
    free, found = ([row["translation"] for row in rows(tmp_path / each)] for each in ("free", "out"))
    dog = free[2]
    assert free[0].startswith(dog)
    house = free[0].removeprefix(free[1].removesuffix(dog).join([f"{dog} ", ""]))
    assert found == [f"{dog} Es steht offen! {house}", f"Es steht offen! {dog}", dog]


def test_new_pairs_are_written_once_each_and_the_next_run_asks_for_none(tmp_path: Path, source: Path, memory: Path):
    written = tmp_path / "new.tmx"
    lingon("bulk", source, tmp_path / "out", *MODEL, "--memory", memory, "--write-memory", written)
    pairs = {each.source: each.target for each in read_segments(written, "en", "de")}
    translations = {row["text"]: row["translation"] for row in rows(tmp_path / "out")}
    expected = set(LINES[:30]) - set(LINES[:20:2])
    assert set(pairs) == expected
    assert all(pairs[text] == translations[text] for text in expected)
    write_jsonl(tmp_path / "again" / "a.jsonl", sorted(expected))
    said = lingon("bulk", tmp_path / "again", tmp_path / "out2", *MODEL, "--memory", written, "--dry-run")
    assert "about 0 in the texts" in said


def test_a_run_goes_on_only_with_the_memory_that_it_was_begun_with(tmp_path: Path, source: Path, memory: Path):
    command = ("bulk", source, tmp_path / "out", *MODEL, "--memory", memory)
    lingon(*command)
    before = parts(tmp_path / "out")
    lingon(*command)
    assert parts(tmp_path / "out") == before
    memory.write_text(memory.read_text() + "a,b\n")
    assert "was begun with options memory_file '" in lingon(*command, code=2)


def test_a_memory_is_refused_with_languages_of_rows_and_on_other_machines(tmp_path: Path, source: Path, memory: Path):
    command = ("bulk", source, tmp_path / "out", *MODEL, "--memory", memory)
    assert "leave out --language-column" in lingon(*command, "--language-column", "language", code=2)
    assert "--memory is on this machine: use --engine local, got ray" in lingon(*command, "--engine", "ray", code=2)
    assert not (tmp_path / "out").exists()
