"""A run whose folder was changed ends with the rows of an undisturbed run or with one clear line, whatever was changed.

The changes are generated: each field of the plan and of a record gets values of other types and of its own, files are
cut, exchanged, replaced by links and folders, and state comes from another run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lingon.bulk import Translate, finish, missing, plan
from lingon.bulk.format import CellValue
from lingon.bulk.planning import PLAN, STATE, stored_plan
from lingon.bulk.runs import LocalEngine, run
from lingon.bulk.shards import MANIFEST, RECORDS, SEAL, SUCCESS, ShardWorker
from lingon.bulk.storage import digest, open_folder
from lingon.bulk.translating import CellOutcome, TokenCounts
from lingon.errors import LingonError
from tests.support.bulk import LINES, FailingEngine, Silent, parts, write_jsonl
from tests.support.repository import FULL

ROWS, SHARD_ROWS = 9, 3
NESTED = "[" * 100_000 + "]" * 100_000
VALUES = (None, True, -1, 0, 1, 2, 10**9, 1.5, float("nan"), "x", "a\nb", "", [], [1], {}, {"a": 1})
FORGED = ", with its own digest"  # ends the name of a change that a record's digest does not show
CHANGES_OF_A_FIELD = len(VALUES) if FULL else 2
Change = Callable[[Path], object]
JsonPath = tuple[str | int, ...]


class Upper(Translate):
    """Translates into capitals, without a model."""

    def model(self) -> str:
        return "upper/1 fp32"

    def cells(
        self,
        values: Sequence[CellValue],
        languages: Sequence[CellValue] | None = None,
        on_rows: Callable[[int], object] = lambda rows: None,
    ) -> tuple[list[CellOutcome], TokenCounts]:
        return [CellOutcome(str(value).upper()) for value in values], TokenCounts(len(values), len(values))


class Folders:
    """An input, and outputs of it: whole, ended half-way, and of a run with other shards."""

    def __init__(self, folder: Path) -> None:
        self.source, self.translate = folder / "in", Upper(model="none", into="de", beam_size=1)
        write_jsonl(self.source / "a.jsonl", (f"Row {number}." for number in range(ROWS)))  # parts have one size
        write_jsonl(self.source / "b.jsonl", LINES[:4])
        self.done, self.half, self.other = folder / "done", folder / "half", folder / "other"
        self.manifest = self.run(self.done)
        with pytest.raises(LingonError, match="killed"):
            run(plan(str(self.source), str(self.half), self.translate, shard_rows=SHARD_ROWS), *self._ending(4))
        run(plan(str(self.source), str(self.other), self.translate, shard_rows=2), *self._ending())

    def _ending(self, shards: int | None = None) -> tuple[Any, Translate, Silent]:
        return (LocalEngine() if shards is None else FailingEngine(shards)), self.translate, Silent()

    def run(self, output: Path) -> dict[str, Any]:
        """Run, or go on; returns the manifest without what depends on the clock."""
        work = plan(str(self.source), str(output), self.translate, shard_rows=SHARD_ROWS)
        manifest = run(work, *self._ending())
        assert json.loads((output / MANIFEST).read_text()) == manifest
        return {name: value for name, value in manifest.items() if name != "hours"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("states"))


def _paths(value: object, path: JsonPath = ()) -> Iterator[JsonPath]:
    """The place of each value in a JSON value, below the value itself."""
    inside: dict[Any, object] = {}
    if isinstance(value, dict):
        inside = value
    elif isinstance(value, list):
        inside = dict(enumerate(value))
    for key, each in inside.items():
        yield (*path, key)
        yield from _paths(each, (*path, key))


def _field_changed(name: str, path: JsonPath, value: object, *, sealed: bool) -> Change:
    """A change of one value of a state file; it is removed if the value is Ellipsis. sealed: as a record of its own."""

    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        place = content
        for key in path[:-1]:
            place = place[key]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        if sealed:
            content[SEAL] = digest(json.dumps({key: each for key, each in content.items() if key != SEAL}).encode())
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")

    return change


def _nested(name: str, path: JsonPath) -> Change:
    """Put a value that is nested deeply in the place of another one."""

    def change(folder: Path) -> None:
        _field_changed(name, path, "NESTED", sealed=False)(folder)
        (folder / name).write_text((folder / name).read_text().replace('"NESTED"', NESTED))

    return change


def _replaced(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def _renewed(name: str, make: Change) -> Change:
    """Put something else in the place of a file or folder; make: gets its path."""

    def change(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)

    return change


def _cut(name: str, size: int) -> Change:
    return lambda folder: os.truncate(folder / name, size)


def _flipped(name: str, place: float) -> Change:
    """Change one byte, at this share of the file."""

    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[int(place * len(content))] ^= 1
        (folder / name).write_bytes(content)

    return change


def _exchanged(first: str, second: str) -> Change:
    def change(folder: Path) -> None:
        contents = [(folder / name).read_bytes() for name in (first, second)]
        for name, content in zip((second, first), contents, strict=True):
            (folder / name).write_bytes(content)

    return change


def _copied(source: Path, name: str) -> Change:
    return lambda folder: shutil.copyfile(source, folder / name)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


def _changes(folders: Folders) -> Iterator[tuple[str, Change]]:
    """Changes of a folder with the shards 0 to 3, by a name."""
    draw = random.Random(9)
    records = [f"{RECORDS}/{number:06d}.json" for number in range(4)]
    names = sorted(parts(folders.half))
    for name in (PLAN, records[1]):
        for path in _paths(json.loads((folders.half / name).read_text())):
            for value in (..., *draw.sample(VALUES, CHANGES_OF_A_FIELD)):
                label = f"{name} {path} {'removed' if value is ... else repr(value)}"
                yield label, _field_changed(name, path, value, sealed=False)
                if name != PLAN:
                    yield f"{label}{FORGED}", _field_changed(name, path, value, sealed=True)
            if FULL or not draw.randrange(10):
                yield f"{name} {path} nested", _nested(name, path)
    for name in (PLAN, records[0], names[0]):
        size = (folders.half / name).stat().st_size
        for content in (b"", b"{", b"[]", b"null", b"0", b"{}", b'"x"', b"\xff\xfe", b"\0" * size, NESTED.encode()):
            yield f"{name} is {content[:9]!r}", _replaced(name, content)
        for place in (draw.random() for _ in range(100 if FULL else 6)):
            yield f"{name} flipped at {place}", _flipped(name, place)
            yield f"{name} cut at {place}", _cut(name, int(place * size))
        for kind, make in (
            ("missing", lambda path: None),
            ("a folder", Path.mkdir),
            ("a pipe", os.mkfifo),
            ("a link to its copy", lambda path, name=name: path.symlink_to(folders.done / name)),
            ("a link to nothing", lambda path: path.symlink_to("nothing")),
            ("sparse", _sparse),
        ):
            yield f"{name} is {kind}", _renewed(name, make)
    for first, second in ((0, 1), (2, 3)):
        yield f"records {first} and {second}", _exchanged(records[first], records[second])
        yield f"parts {first} and {second}", _exchanged(names[first], names[second])
        yield f"record {first} twice", _copied(folders.half / records[first], records[second])
        yield f"part {first} twice", _copied(folders.half / names[first], names[second])
    for name in (PLAN, records[1], names[1]):
        yield f"{name} of another run", _copied(folders.other / name, name)
    yield "a part of another run", _copied(folders.other / names[0], "part-00000-00009.jsonl")
    for below in (STATE, RECORDS):
        for kind, make in (
            ("missing", lambda path: None),
            ("a file", Path.touch),
            ("a link to that of another run", lambda path, below=below: path.symlink_to(folders.other / below)),
            ("that of another run", lambda path, below=below: shutil.copytree(folders.other / below, path)),
        ):
            yield f"{below} is {kind}", _renewed(below, make)


def test_a_changed_folder_ends_with_the_rows_of_an_undisturbed_run_or_with_one_line(
    folders: Folders, tmp_path: Path
) -> None:
    errors = []
    changes = list(_changes(folders))
    for number, (label, change) in enumerate(changes):
        folder = tmp_path / str(number)
        shutil.copytree(folders.half, folder)
        change(folder)
        try:
            manifest = folders.run(folder)
        except LingonError as error:
            errors.append(str(error))
            assert not (folder / SUCCESS).exists(), label
        except Exception as error:
            raise AssertionError(label) from error
        else:
            assert parts(folder) == parts(folders.done), label
            counted = ("rows", "shards") if label.endswith(FORGED) else folders.manifest.keys()
            assert all(manifest[name] == folders.manifest[name] for name in counted), label
    assert all(len(each.splitlines()) == 1 and len(each) < 2000 for each in errors)
    assert 50 < len(errors) < len(changes) - 50  # both ends were seen often


def test_no_sign_of_success_stays_while_a_shard_is_missing(folders: Folders, tmp_path: Path) -> None:
    for name in (sorted(parts(folders.done))[1], f"{RECORDS}/000001.json"):
        folder = tmp_path / Path(name).name
        shutil.copytree(folders.done, folder)
        (folder / name).unlink()
        work = plan(str(folders.source), str(folder), folders.translate, shard_rows=SHARD_ROWS)
        assert [shard.number for shard in missing(work)] == [1]
        assert not (folder / SUCCESS).exists()


def test_a_file_that_changes_during_a_run_is_noticed_at_its_end(folders: Folders, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(folders.done, folder)
    work = plan(str(folders.source), str(folder), folders.translate, shard_rows=SHARD_ROWS)
    assert not missing(work)
    _flipped(sorted(parts(folder))[2], 0.5)(folder)
    with pytest.raises(LingonError, match="1 of 5 shards are missing or have other bytes"):
        finish(work)


def test_a_worker_refuses_a_folder_with_another_plan(folders: Folders, tmp_path: Path) -> None:
    work = plan(str(folders.source), str(tmp_path), folders.translate, shard_rows=SHARD_ROWS)
    ShardWorker(work, folders.translate)
    for change in (_copied(folders.other / PLAN, PLAN), lambda folder: (folder / PLAN).unlink()):
        change(tmp_path)
        with pytest.raises(LingonError, match="this worker does not find the plan there"):
            ShardWorker(work, folders.translate)


@pytest.mark.parametrize("output", ["a.txt", "a.txt/out"])
def test_an_output_that_is_a_file_is_named(tmp_path: Path, output: str):
    (tmp_path / "a.txt").write_text("One house.")
    with pytest.raises(LingonError, match=rf"/{output}: is a file, or below one; choose a folder for the output$"):
        stored_plan(open_folder(str(tmp_path / output)))
