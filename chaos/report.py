"""The results: one JSON file a day, into which later runs of single cases are merged, and a Markdown table of it."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.verdict.checks import CLEAN, FAIL, PARTIAL, PASS, SKIP, Row, readable
from lingon.bench.results_file import commit, machine
from lingon.errors import LingonError
from lingon.files import write_json

if TYPE_CHECKING:
    from chaos.case import Case

SKIPPED = "not run: "  # starts the part of a figure that says what was not run
TEST_FILE = re.compile(r"tests/\S+\.py")
PLACEHOLDER = re.compile(r"\{(@?)(.+?)\}")
TRIES = re.compile(r" \(best of \d+\)$")


def save(rows: Sequence[Row], folder: Path, arguments: Sequence[str], now: datetime | None = None) -> Path:
    """Merge the rows into folder/DATE-chaos.json, by their numbers; returns the file.

    Each row holds its own commit, command and date, because the rows of a day can come from several runs.
    """
    now = now or datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%d}-chaos.json"
    head = {
        "date": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "commit": commit(),
        "command": shlex.join(["python", "-m", "chaos", *arguments]),
    }
    origin = {name: head[name] for name in ("date", "commit", "command")}
    merged = {row["number"]: row for row in _rows(path)}
    merged |= {row.number: {**asdict(row), **origin} for row in rows}
    write_json(path, {**head, "rows": [merged[number] for number in sorted(merged)]})
    return path


def read(path: Path) -> list[Row]:
    """The rows of a result file."""
    fields = Row.__dataclass_fields__
    return [Row(**{name: value for name, value in row.items() if name in fields}) for row in _rows(path)]


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    except (ValueError, KeyError, TypeError):
        raise LingonError(f"{path}: not a result file of chaos; move it away") from None
    return rows


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| test | found | bound | verdict |", "|---|---|---|---|"]
    lines += [f"| {_cell(row.test)} | {_cell(row.figure)} | {_cell(row.bound)} | {row.verdict} |" for row in rows]
    return "\n".join(lines)


def for_people(rows: Iterable[Row], cases: Iterable[Case]) -> list[Row]:
    """The rows with the current names and bounds of their cases, and with `found` in place of the whole figure.

    A row whose case no longer exists keeps its words.
    """
    by_number = {each.number: each for each in cases}
    return [
        replace(row, test=which.title, bound=which.bound, figure=found(row, which.figures, which.tests))
        if (which := by_number.get(row.number))
        else row
        for row in rows
    ]


def found(row: Row, figures: Sequence[str], tests: Sequence[str] = ()) -> str:
    """The result of a case in a few words: failed checks, the figures that its bound names, the number of the others.

    figures: templates. `{goodput at 5x} of the peak` stands for the value of the check whose name starts with the
    words in braces, of the first of them if there are several; `{@goodput at 5x}` stands for its whole name, and in
    `{new|old}` the old words are those of earlier result files. A template without such a check is left out.
    tests: the files of tests that the case runs now; a result file holds the paths that they had then
    """
    if row.verdict == SKIP or not row.checks:
        return row.figure
    failed = [
        f"FAILED {check['what']}: {plain(check['value'])}, bound {plain(check['bound'])}"
        for check in row.checks
        if not check["passed"]
    ]
    parts = [*failed, *named(row, figures), *_remaining(row.checks, figures, tests)]
    if row.verdict == PARTIAL and SKIPPED in row.figure:
        parts.append(TRIES.sub("", row.figure[row.figure.index(SKIPPED) :]))
    tries = TRIES.search(row.figure)
    return "; ".join(parts) + (tries[0] if tries else "")


def named(row: Row, figures: Sequence[str]) -> list[str]:
    """The figures of `found` that a row has the checks for."""
    return [text for text in (_filled(template, row.checks) for template in figures) if text]


def _remaining(checks: Sequence[Mapping[str, Any]], figures: Sequence[str], tests: Sequence[str]) -> list[str]:
    """The passed test files, or the number of passed checks that no figure names."""
    names = tuple(part for template in figures for _, name in PLACEHOLDER.findall(template) for part in name.split("|"))
    passed = [check["what"] for check in checks if check["passed"] and not check["what"].startswith(names)]
    if not passed:
        return []
    if len(passed) == len(tests):
        return [f"passed: {', '.join(f'`{test}`' for test in tests)}"]
    if all(TEST_FILE.match(what) for what in passed):
        return [f"{len(passed)} test file{'s' if len(passed) > 1 else ''} passed"]
    count = len(passed)
    return [f"{count} {'other ' if names else ''}check{'s' if count > 1 else ''} passed"]


def _filled(template: str, checks: Sequence[Mapping[str, Any]]) -> str:
    """A template with values; empty if a check is missing."""
    for sign, name in PLACEHOLDER.findall(template):
        check = next((check for check in checks if check["what"].startswith(tuple(name.split("|")))), None)
        if check is None:
            return ""
        template = template.replace(f"{{{sign}{name}}}", check["what"] if sign else plain(check["value"]))
    return template


def plain(text: str) -> str:
    """A value or bound as a person writes it; older result files hold values in Python's notation."""
    if text == CLEAN:
        return "none"
    if re.match(r"nan\b", text):
        return "unknown"
    if seconds := re.fullmatch(r"(0\.\d+) s", text):
        return f"{1000 * float(seconds[1]):.3g} ms"
    if times := re.fullmatch(r"(\S+) times", text):
        return f"{times[1]} x"
    sign, space, value = text.partition(" ") if text.startswith(("= ", "<= ", ">= ")) else ("", "", text)
    if value in ("set()", "Counter()"):
        return f"{sign}{space}none"
    try:
        return f"{sign}{space}{readable(ast.literal_eval(value))}"
    except (ValueError, SyntaxError):
        return text


def summary(rows: Sequence[Row]) -> str:
    """The number of rows of each verdict."""
    counts = Counter(row.verdict for row in rows)
    shown = [f"{counts[verdict]} {verdict}" for verdict in (PASS, PARTIAL, SKIP, FAIL) if counts[verdict]]
    return f"{len(rows)} run: {', '.join(shown)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
