"""The plan of a run: the rows of each shard, and the task of the run. It is written once.

A shard is a function of the plan and the input alone. Translations do not depend on the batch, so that
a shard that is done twice, by two machines or after a crash, has the same bytes.

A stored plan is only compared: the plan is made again from the input, which takes little of the time of a run, and must
have the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from reprlib import Repr
from typing import Any

from lingon.bulk.format import FilePiece, TableFormat
from lingon.bulk.formats import format_of, suffix_of
from lingon.bulk.storage import Folder, InputFile, digest, input_files, open_folder, opened
from lingon.bulk.translating import Translate
from lingon.errors import LingonError, SettingsError

STATE = "_lingon"
PLAN = f"{STATE}/plan.json"
SHARD_ROWS = 50_000
FORMAT = 2  # of the plan
MOST_PLAN_BYTES = 2**30


@dataclass(frozen=True)
class Shard:
    """Rows of a file. file: its number in the plan."""

    number: int
    file: int
    piece: FilePiece


@dataclass(frozen=True)
class Plan:
    """The work of a run.

    output: the folder, which is no part of its identity
    task: columns and options by name, as they were asked for
    model: name, version and precision
    """

    output: str
    task: dict[str, Any]
    model: str
    files: tuple[InputFile, ...]
    shards: tuple[Shard, ...]

    @property
    def rows(self) -> int:
        """The number of rows of all shards."""
        return sum(shard.piece.rows for shard in self.shards)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the plan as it is written."""
        return digest(self.written())

    def format_of(self, file: int) -> TableFormat:
        """Return the format of a file. file: its number."""
        return format_of(self.files[file].url, quoted_tsv=self.task["quoted_tsv"])

    @property
    def folder(self) -> Folder:
        """The folder of the output."""
        return open_folder(self.output)

    def part(self, shard: Shard) -> str:
        """Return the name of the file that a shard becomes."""
        position = shard.piece.first // self.task["shard_rows"]
        return f"part-{shard.file:05d}-{position:05d}{suffix_of(self.files[shard.file].url)}"

    def written(self) -> bytes:
        """Return the plan as JSON."""
        shards = [[each.file, each.piece.first, each.piece.rows, each.piece.offset] for each in self.shards]
        files = [asdict(each) for each in self.files]
        content = {"format": FORMAT, "model": self.model, "task": self.task, "files": files, "shards": shards}
        return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def plan(
    source: str,
    output: str,
    translate: Translate,
    *,
    shard_rows: int = SHARD_ROWS,
    limit: int | None = None,
    fail_on_errors: bool = False,
    quoted_tsv: bool = False,
    write: bool = True,
) -> Plan:
    """Cut the input into shards and write the plan to the folder of the output, or continue with the plan that it has.

    source: a file, a pattern such as in/*.parquet, or a folder; output: a folder. Each may be in an object store
    shard_rows: rows of a shard; limit: of the input, from its beginning
    fail_on_errors: whether a row that cannot be translated ends the run. Otherwise the column of errors has the reason
    quoted_tsv: whether quotation marks have their meaning of CSV in TSV
    write: False only returns the plan, whatever the folder has

    Raise SettingsError if the folder has the plan of another run, naming the first difference, and LingonError if it
    has something else instead of a plan.
    """
    rows = {"shard_rows": shard_rows, "limit": limit, "fail_on_errors": fail_on_errors, "quoted_tsv": quoted_tsv}
    wanted = _wanted(source, output, translate, rows)
    if not write:
        return replace(wanted, shards=tuple(_cut(wanted)))
    folder = open_folder(output)
    begun = stored_plan(folder)
    if begun is not None:
        _check_task(folder, begun, wanted)  # before the input is cut, which reads all of it
    wanted = replace(wanted, shards=tuple(_cut(wanted)))
    if begun is None:
        try:
            folder.create(PLAN, wanted.written())
            return wanted
        except FileExistsError:  # another driver was faster
            begun = stored_plan(folder) or b""
            _check_task(folder, begun, wanted)
    if begun != wanted.written():
        raise LingonError(f"{folder.url}/{PLAN}: has other shards than this input is cut into; choose another folder")
    return wanted


def _wanted(source: str, output: str, translate: Translate, rows: Mapping[str, Any]) -> Plan:
    """Return the plan without its shards. Raise SettingsError for an input that it does not fit.

    rows: the part of the task that says how the rows are cut, read and translated
    """
    if rows["shard_rows"] < 1:
        raise SettingsError(f"shard_rows must be at least 1, got {rows['shard_rows']}")
    folder, columns = open_folder(output), translate.columns
    files = _outside(folder, input_files(source))
    task = {"columns": asdict(columns), "options": _written_options(translate.identity), **rows}
    wanted = Plan(folder.url, json.loads(json.dumps(task)), "", files, ())
    for number, file in enumerate(files):
        with opened(file.url) as content:
            wanted.format_of(number).check(file.url, content, columns.needed, columns.added)
    return replace(wanted, model=translate.model())  # Loading takes long, so that it is last.


def _written_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as a plan has them: of terms, which may be many, their number and their SHA-256."""
    written = {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in options.items()
    }
    if (terms := options.get("terms")) is not None:
        written["terms"] = f"{len(terms):,} with SHA-256 {terms.digest}"
    return written


def _outside(folder: Folder, files: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Return the files of the input without files of the output folder, which the run has written if it was begun.

    Raise SettingsError if it was not begun, or no other file is left.
    """
    inside = {each for each in files if each.url.startswith(f"{folder.url.rstrip('/')}/")}
    if inside and (len(inside) == len(files) or stored_plan(folder) is None):
        raise SettingsError(f"{min(each.url for each in inside)}: is in the folder of the output; choose another one")
    return tuple(each for each in files if each not in inside)


def _cut(wanted: Plan) -> Iterator[Shard]:
    number, left = 0, wanted.task["limit"]
    for index, file in enumerate(wanted.files):
        if left == 0:
            return
        with opened(file.url) as content:
            for piece in wanted.format_of(index).cut(file.url, content, wanted.task["shard_rows"]):
                taken = piece if left is None else replace(piece, rows=min(piece.rows, left))
                yield Shard(number, index, taken)
                number += 1
                left = None if left is None else left - taken.rows
                if left == 0:
                    break


def stored_plan(folder: Folder) -> bytes | None:
    """Return the plan that a folder has, as it is written, or None if it has none."""
    try:
        return folder.read(PLAN, MOST_PLAN_BYTES)
    except FileNotFoundError:
        return None


def _check_task(folder: Folder, begun: bytes, wanted: Plan) -> None:
    """Raise SettingsError if a folder was begun with another model, task or input; LingonError if it has no plan."""
    try:
        before = _named_values(json.loads(begun))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise LingonError(f"{folder.url}/{PLAN}: is damaged; choose another folder") from None
    now = _named_values(json.loads(wanted.written()))
    for name in [*before, *now]:
        if before.get(name) != now.get(name):
            was, is_now = (_SHOWN.repr(values.get(name)) for values in (before, now))
            raise SettingsError(
                f"{folder.url}: was begun with {_SHOWN.repr(name)[1:-1]} {was}, not {is_now}; choose another folder"
            )


def _named_values(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the parts that the same plans have in common, by their names in messages. plan: as it is written."""
    task = plan["task"]
    flat = {f"{group} {name}": value for group in ("columns", "options") for name, value in task[group].items()}
    rest = {name: value for name, value in task.items() if name not in ("columns", "options")}
    files = {f"the input {each['url']}": f"{each['size']} bytes, {each['version']}" for each in plan["files"]}
    return {"the format": plan["format"], "the model": plan["model"], **flat, **rest, **files}


_SHOWN = Repr()
"""Writes a value of a plan for a message, which stays one line whatever the value is."""
_SHOWN.maxstring = _SHOWN.maxother = 300
