"""The figures of the hostile cases before and after a change: one JSON file, and a Markdown table of it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.case import Case
from chaos.report import named, plain
from chaos.verdict.checks import Row
from lingon.bench.results_file import commit, machine
from lingon.errors import LingonError
from lingon.files import write_json

BEFORE, AFTER = "before", "after"
BAR = "\\|"  # a bar inside a cell of a Markdown table


def origin(tree: Path | None, arguments: Sequence[str]) -> dict[str, Any]:
    """Where figures come from: date, machine, its load at the end of the run, commit of the server, command.

    arguments: of the command; where it kept its logs is left out
    """
    places = range(len(arguments))
    kept = [arguments[place] for place in places if "--keep" not in (arguments[place], *arguments[place - 1 : place])]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load": [round(value, 1) for value in os.getloadavg()],
        "commit": commit(tree),
        "command": shlex.join(["python", "-m", "chaos", *kept]),
    }


def merge(path: Path, side: str, row: Row, source: dict[str, Any]) -> None:
    """Write the figures of one case into the file, in place of those that the side had of it."""
    content = _content(path)
    content.setdefault(side, {})[str(row.number)] = {**source, **asdict(row)}
    ordered = {name: content[name] for name in (BEFORE, AFTER) if name in content}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {name: dict(sorted(cases.items(), key=_number)) for name, cases in ordered.items()})


def _number(item: tuple[str, Any]) -> int:
    return int(item[0])


def _content(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    known = isinstance(content, dict) and set(content) <= {BEFORE, AFTER}
    if not known or not all(isinstance(cases, dict) for cases in content.values()):
        raise LingonError(f"{path}: not a file of hostile figures; move it away")
    found: dict[str, dict[str, Any]] = content
    return found


def table(path: Path, cases: Iterable[Case]) -> str:
    """One line for each case: its findings, the figures that it names before and after, its bound and verdict now."""
    content, lines = (
        _content(path),
        ["| test | findings | before | after | bound | verdict |", "|---|---|---|---|---|---|"],
    )
    for case in cases:
        sides = [content.get(side, {}).get(str(case.number)) for side in (BEFORE, AFTER)]
        if any(sides):
            shown = ["; ".join(named(row_of(side), case.figures)) if side else "" for side in sides]
            verdict = sides[1]["verdict"] if sides[1] else ""
            cells = [case.title, ", ".join(map(str, case.findings)), *shown, case.bound, verdict]
            lines.append(f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |")
    return "\n".join(lines)


def row_of(values: dict[str, Any]) -> Row:
    """The row of a case in the file, without its origin."""
    return Row(**{name: values[name] for name in Row.__dataclass_fields__})


def figures(path: Path, cases: Iterable[Case]) -> str:
    """One line for each figure: case and findings, what was measured, before, after and the bound."""
    content, lines = (
        _content(path),
        ["| case | finding | figure | before | after | bound |", "|---|---|---|---|---|---|"],
    )
    for case in cases:
        sides = {side: _checks(content.get(side, {}).get(str(case.number))) for side in (BEFORE, AFTER)}
        findings = ", ".join(map(str, case.findings))
        for what in dict.fromkeys([*sides[AFTER], *sides[BEFORE]]):
            values = [_shown(sides[side].get(what)) for side in (BEFORE, AFTER)]
            bound = (sides[AFTER].get(what) or sides[BEFORE][what])["bound"]
            lines.append(f"| {case.number} | {findings} | {' | '.join([what, *values, plain(bound)])} |")
    return "\n".join(lines)


def _checks(row: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    return {} if row is None else {check["what"]: check for check in row["checks"]}


def _shown(check: dict[str, Any] | None) -> str:
    """The value of a check, in bold if it is out of bounds; empty if it was not measured."""
    if check is None:
        return ""
    value = plain(check["value"]).replace("|", BAR)
    return value if check["passed"] else f"**{value}**"
