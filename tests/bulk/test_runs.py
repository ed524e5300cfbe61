"""A run writes each row once and in order, whatever ends it and whoever goes on with it."""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lingon.bulk import Translate, finish, missing, plan, run_shard
from lingon.bulk.planning import MOST_PLAN_BYTES, PLAN
from lingon.bulk.runs import LocalEngine, run
from lingon.bulk.shards import MANIFEST, RECORDS, SUCCESS
from lingon.bulk.storage import LocalFolder
from lingon.cli.backend import BackendOptions
from lingon.cli.main import main
from lingon.errors import LingonError, ServerError, SettingsError
from lingon.files import lock_path
from tests.support.bulk import (
    BACKEND,
    LINES,
    MIXED,
    FailingEngine,
    Silent,
    parts,
    rows,
    translator,
    write_jsonl,
    write_parquet,
)
from tests.support.processes import ENVIRONMENT, lingon
from tests.support.random_models import TEXTS, write_multilingual_bundle
from tests.support.repository import FULL

SOURCES = ("en", "de", "fr")  # of the bundle of several languages


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_parquet(tmp_path / "in" / "a.parquet", MIXED, row_group_size=30)
    write_jsonl(tmp_path / "in" / "more" / "b.jsonl", LINES[90:110])
    (tmp_path / "in" / "_SUCCESS").touch()
    (tmp_path / "in" / "notes.md").write_text("no data")
    return tmp_path / "in"


@pytest.fixture
def done(source: Path, translate: Translate) -> Path:
    """The output of an undisturbed run."""
    folder = source.parent / "done"
    run(plan(str(source), str(folder), translate, shard_rows=25), LocalEngine(), translate, Silent())
    return folder


def test_all_rows_are_there_in_order_with_their_translations(done: Path, translate: Translate) -> None:
    texts = [*MIXED, *LINES[90:110]]
    found = rows(done)
    assert [row["text"] for row in found] == texts
    assert [row["id"] for row in found[: len(MIXED)]] == list(range(len(MIXED)))
    assert [row["tags"] for row in found[: len(MIXED)]] == [[number] for number in range(len(MIXED))]
    cells, _ = translate.cells(texts)
    assert [(row["de"], row["de_error"]) for row in found] == [(cell.text, cell.error) for cell in cells]
    assert list(parts(done)) == [f"part-00000-0000{n}.parquet" for n in range(5)] + ["part-00001-00000.jsonl"]
    manifest = json.loads((done / MANIFEST).read_text())
    assert (manifest["rows"], manifest["errors"], manifest["shards"]) == (len(texts), 1, 6)
    assert (done / SUCCESS).read_bytes() == b""
    problems = [json.loads(path.read_text())["problems"] for path in sorted((done / RECORDS).iterdir())]
    assert problems[1] == {"40": "the text is null"}


@pytest.mark.parametrize("shards", [0, 2, 5])
def test_a_run_that_was_ended_goes_on_and_writes_the_same_bytes(
    source: Path, done: Path, translate: Translate, shards: int
) -> None:
    folder = source.parent / "ended"
    work = plan(str(source), str(folder), translate, shard_rows=25)
    with pytest.raises(LingonError, match="killed"):
        run(work, FailingEngine(shards), translate, Silent())
    assert not (folder / SUCCESS).exists()
    again = plan(str(source), str(folder), translate, shard_rows=25)
    assert again == replace(work, output=again.output)
    assert len(missing(again)) == 6 - shards
    run(again, LocalEngine(), translate, Silent())
    assert parts(folder) == parts(done)
    assert run(again, FailingEngine(0), translate, Silent())["shards"] == 6, "a run that is done does nothing"


def test_a_shard_that_is_done_twice_has_the_same_bytes(source: Path, done: Path, translate: Translate) -> None:
    work = plan(str(source), str(done), translate, shard_rows=25)
    before = parts(done)
    for shard in reversed(work.shards):
        run_shard(work, shard, translate)
    assert parts(done) == before
    finish(work)


@pytest.mark.parametrize("name", ["part-00000-00003.parquet", f"{RECORDS}/000003.json"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_lost_or_damaged_file_is_made_again(
    done: Path, source: Path, translate: Translate, name: str, damage: Any
) -> None:
    before = parts(done)
    damage(done / name)
    work = plan(str(source), str(done), translate, shard_rows=25)
    assert [shard.number for shard in missing(work)] == [3]
    with pytest.raises(LingonError, match="1 of 6 shards are missing"):
        finish(work)
    run(work, LocalEngine(), translate, Silent())
    assert parts(done) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shard_rows": 24}, "was begun with shard_rows 25, not 24"),
        ({"limit": 7}, "was begun with limit None, not 7"),
        ({"fail_on_errors": True}, "was begun with fail_on_errors False, not True"),
        ({"quoted_tsv": True}, "was begun with quoted_tsv False, not True"),
    ],
)
def test_another_plan_for_the_same_folder_is_refused(
    source: Path, done: Path, translate: Translate, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        plan(str(source), str(done), translate, **{"shard_rows": 25, **change})


def test_other_options_another_model_or_another_input_is_refused(
    source: Path, done: Path, translate: Translate
) -> None:
    with translator(beam_size=2) as other, pytest.raises(SettingsError, match="options beam_size 1, not 2"):
        plan(str(source), str(done), other, shard_rows=25)
    with (
        translator(backend=replace(BACKEND, precision="fp32")) as other,
        pytest.raises(SettingsError, match=r"was begun with the model 'en-de/10 int8.*', not 'en-de/10 fp32 .*'"),
    ):
        plan(str(source), str(done), other, shard_rows=25)
    os.utime(source / "a.parquet", (1, 1))
    with pytest.raises(SettingsError, match=r"the input .*a\.parquet '\d+ bytes, .*', not '\d+ bytes, 1\.0'"):
        plan(str(source), str(done), translate, shard_rows=25)


def test_a_damaged_plan_is_named(source: Path, done: Path, translate: Translate) -> None:
    (done / PLAN).write_text("{")
    with pytest.raises(LingonError, match=r"plan\.json: is damaged"):
        plan(str(source), str(done), translate, shard_rows=25)


def test_rows_of_tsv_are_joined_only_if_quotation_marks_were_asked_for(tmp_path: Path, translate: Translate) -> None:
    source = tmp_path / "a.tsv.gz"
    lines = [b'1\t"This quotation is not closed.', b"2\tA row.", b'3\t"', b"4\tEnd."]
    source.write_bytes(gzip.compress(b"\n".join([b"id\ttext", *lines])))
    work = plan(str(source), str(tmp_path / "out"), translate, shard_rows=3)
    run(work, LocalEngine(), translate, Silent())
    found = b"".join(gzip.decompress(part) for part in parts(tmp_path / "out").values()).splitlines()
    assert [line.rsplit(b"\t", 2)[0] for line in found if not line.startswith(b"id\t")] == lines
    lingon("bulk", str(source), str(tmp_path / "quoted"), "--quoted-tsv", "--model", str(BACKEND.model))
    (part,) = parts(tmp_path / "quoted").values()
    assert [row[0] for row in csv.reader(gzip.decompress(part).decode().splitlines(True), delimiter="\t")] == [
        "id",
        "1",
        "4",
    ]


@pytest.mark.parametrize("target", ["en", "de"])
def test_a_model_of_several_source_languages_reads_them_in_a_column(tmp_path: Path, target: str) -> None:
    """The target is the first language of the model, or another one."""
    backend = BackendOptions(model=str(write_multilingual_bundle(tmp_path / "many" / "1").folder), threads=1)
    texts = [{"text": text, "from": language} for language in SOURCES for text in TEXTS]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in texts))
    with translator(backend=backend, language_column="from", target=target) as translate:
        work = plan(str(tmp_path / "a.jsonl"), str(tmp_path / "out"), translate)
        run(work, LocalEngine(), translate, Silent())
    assert work.model.startswith("many/1 fp32 ")
    found = {language: [row for row in rows(tmp_path / "out") if row["from"] == language] for language in SOURCES}
    for language in SOURCES:
        with translator(backend=backend, source=language, target=target) as alone:
            cells, _ = alone.cells(TEXTS)
        assert [(row["de"], row["de_error"]) for row in found[language]] == [(each.text, each.error) for each in cells]
        assert all(each.error for each in cells) == (language == target)


def test_a_model_of_several_target_languages_asks_for_one(tmp_path: Path) -> None:
    backend = BackendOptions(model=str(write_multilingual_bundle(tmp_path / "many" / "1").folder), threads=1)
    with (
        translator(backend=backend, language_column="from") as translate,
        pytest.raises(ServerError, match="target_language_code must name a language of many/1"),
    ):
        translate.model()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--source", "en", "--target", "fr", "--beam-size", "99"], "--beam-size must be 1 to "),
        (["--target", "de"], "--source-language must name a language"),
    ],
)
def test_the_verb_names_the_flag_that_the_model_refuses(tmp_path: Path, options: list[str], message: str) -> None:
    folder = write_multilingual_bundle(tmp_path / "many" / "1").folder
    (tmp_path / "in.txt").write_text("Hello.\n")
    files = [str(tmp_path / "in.txt"), str(tmp_path / "out")]
    assert f"lingon: error: {message}" in lingon("bulk", *files, "--model", str(folder), *options, code=1)


def test_half_of_a_surrogate_pair_in_json_is_a_row_with_an_error(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    lines = [
        r'{"text": "cut \ud83d", "from": "en"}',
        r'{"text": "A row.", "from": "\udc00"}',
        '{"text": "A row.", "from": "en"}',
    ]
    source.write_text("".join(f"{line}\n" for line in lines))
    with translator(language_column="from") as translate:
        run(plan(str(source), str(tmp_path / "out"), translate), LocalEngine(), translate, Silent())
    first, second, third = (row["de_error"] for row in rows(tmp_path / "out"))
    assert first == "the value of 'text' has half of a surrogate pair, which is no character"
    assert second == "the language: the value of 'from' has half of a surrogate pair, which is no character"
    assert third is None


DOGS = ["The dog sleeps.", "A cat sleeps.", "Dogs sleep.", "The dog sleeps."]


def test_terms_are_in_the_translations_and_other_terms_are_another_run(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", DOGS)
    folder = tmp_path / "out"
    many = {f"word{number}": f"Wort{number}" for number in range(300)}
    with translator(terms={"dog": "Köter", **many}) as translate:
        work = plan(str(tmp_path / "in.jsonl"), str(folder), translate)
        manifest = run(work, LocalEngine(), translate, Silent())
    assert ["Köter" in row["de"] for row in rows(folder)] == [True, False, False, True]
    assert manifest["rows_without_terms"] == 0
    with (
        translator(terms={"dog": "Hund", **many}) as other,
        pytest.raises(
            SettingsError, match=r"was begun with options terms '301 with SHA-256 \w+', not '301 with SHA-256"
        ),
    ):
        plan(str(tmp_path / "in.jsonl"), str(folder), other)


def test_the_verb_counts_the_rows_whose_translation_lacks_a_term(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "in.jsonl", DOGS)
    (tmp_path / "terms.tsv").write_text("dog\tein sehr großer und sehr alter Hund\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("in.jsonl", "out")]
    options = ["--beam-size", "1", "--max-output-tokens", "3", "--terms", str(tmp_path / "terms.tsv")]
    assert main(["bulk", *files, "--model", str(BACKEND.model), *options]) == 0
    assert "lingon: warning: the translations of 2 rows lack a term\n" in capfd.readouterr().err


def test_a_limit_takes_the_first_rows(source: Path, tmp_path: Path, translate: Translate, done: Path) -> None:
    for limit in (25, 30, 107):
        folder = tmp_path / f"first {limit}"
        run(plan(str(source), str(folder), translate, shard_rows=25, limit=limit), LocalEngine(), translate, Silent())
        assert rows(folder) == rows(done)[:limit]


def test_an_error_can_end_the_run_before_its_shard_is_written(
    source: Path, tmp_path: Path, translate: Translate
) -> None:
    work = plan(str(source), str(tmp_path / "out"), translate, shard_rows=25, fail_on_errors=True)
    with pytest.raises(LingonError, match=r"a\.parquet: row 40: the text is null"):
        run(work, LocalEngine(), translate, Silent())
    assert [shard.number for shard in missing(work)] == [1, 2, 3, 4, 5]


def test_what_killed_processes_left_is_removed_by_the_next_run(source: Path, done: Path, translate: Translate) -> None:
    left = [
        done / ".part-00000-00000.parquet.part-0123456789abcdef",
        done / RECORDS / ".000001.json.part-0123456789abcdef",
    ]
    for path in left:
        path.write_bytes(b"half")
    run(plan(str(source), str(done), translate, shard_rows=25), LocalEngine(), translate, Silent())
    assert not any(path.exists() for path in left)


def test_two_runs_of_one_folder_at_once_are_refused(source: Path, done: Path, translate: Translate) -> None:
    work = plan(str(source), str(done), translate, shard_rows=25)
    with lock_path(done), pytest.raises(LingonError, match="another run is writing to this folder"):
        run(work, LocalEngine(), translate, Silent())


def test_a_plan_is_written_once(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.create(PLAN, b"mine")
    with pytest.raises(FileExistsError):
        folder.create(PLAN, b"other")
    assert folder.read(PLAN, MOST_PLAN_BYTES) == b"mine"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nothing/*.parquet", "nothing/.*: there is no such file"),
        ("in/notes.md", "the format is not known"),
        ("no-such-store://in", "Protocol not known"),
    ],
)
def test_an_input_that_cannot_be_used_is_named(
    source: Path, monkeypatch: pytest.MonkeyPatch, translate: Translate, given: str, message: str
) -> None:
    monkeypatch.chdir(source.parent)
    with pytest.raises(SettingsError, match=message):
        plan(given, "out", translate)
    assert not Path("out").exists()


@pytest.mark.parametrize("pattern", ["in", "in/*/*.jsonl"])
def test_a_run_whose_output_lies_in_its_input_goes_on_and_does_not_read_it(
    source: Path, monkeypatch: pytest.MonkeyPatch, translate: Translate, pattern: str
) -> None:
    monkeypatch.chdir(source.parent)
    folder = source / "out"
    work = plan(pattern, str(folder), translate, shard_rows=10)
    with pytest.raises(LingonError, match="killed"):
        run(work, FailingEngine(1), translate, Silent())
    again = plan(pattern, str(folder), translate, shard_rows=10)
    assert again == work
    run(again, LocalEngine(), translate, Silent())
    assert plan(pattern, str(folder), translate, shard_rows=10) == work
    assert [row["text"] for row in rows(folder)] == ([*MIXED, *LINES[90:110]] if pattern == "in" else LINES[90:110])


@pytest.mark.parametrize("given", ["in", "in/out/part-*.jsonl"])
def test_the_output_is_never_input(source: Path, translate: Translate, given: str) -> None:
    """Neither what another program has written there nor what the run itself has."""
    folder, given = source / "out", str(source.parent / given)
    write_jsonl(folder / "part-00000-00000.jsonl", LINES[:3])
    with pytest.raises(SettingsError, match="is in the folder of the output"):
        plan(given, str(folder), translate)
    (folder / "part-00000-00000.jsonl").unlink()
    run(plan(str(source), str(folder), translate), LocalEngine(), translate, Silent())
    with pytest.raises(SettingsError, match="is in the folder of the output"):
        plan(str(folder), str(folder), translate)


def test_the_verb_is_killed_at_any_time_and_goes_on(source: Path, done: Path, tmp_path: Path) -> None:
    """Also with what only a kill leaves behind: a temporary file, and a lock that ended with its process."""
    folder, chance = tmp_path / "killed", random.Random(4)
    command = [sys.executable, "-m", "lingon", "bulk", str(source), str(folder), "--into", "de", "--shard-rows", "25"]
    command += ["--beam-size", "1", "--model", str(BACKEND.model), "--engines", "1", "--threads", "1"]
    for _ in range(20 if FULL else 3):
        with subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as ran:
            assert ran.stdout is not None
            ran.stdout.readline()  # the plan is there
            time.sleep(chance.uniform(0, 0.4))
            ran.send_signal(signal.SIGKILL)
    (folder / ".part-00000-00000.parquet.part-0123456789abcdef").write_bytes(b"half")
    said = lingon(*command[3:])
    assert f"{len(MIXED) + 20} rows, 1 with an error, in 6 files" in said
    assert parts(folder) == parts(done)
    assert not list(folder.rglob(".*"))
