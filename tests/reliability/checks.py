"""The checks of a case with their bounds, the verdict that follows from them, and the results: a file and a table."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lingon.bench.results_file import commit, machine
from lingon.errors import LingonError
from lingon.files import write_json

PASS, PARTIAL, SKIP, FAIL = "pass", "partial", "skip", "fail"
CLEAN = "none wrong"
MOST_LAG = 20.0  # milliseconds of lag of the load generator, above which its own delays are measured, not the server's


class Skip(Exception):
    """The case cannot run on this machine, for the reason in the message."""


@dataclass(frozen=True, slots=True)
class Check:
    """One checked value.

    timing: whether other processes on a busy machine can cause the failure, so that another try makes sense
    """

    what: str
    value: str
    bound: str
    passed: bool
    timing: bool = False


@dataclass(slots=True)
class Checks:
    """The checks of a case.

    missing: parts of the case that were not run
    lag: milliseconds by which the load generator itself was late
    """

    done: list[Check] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    lag: float = 0.0

    def equal(self, what: str, value: object, expected: object) -> None:
        """Check for an exact value."""
        self.done.append(Check(what, readable(value), f"= {readable(expected)}", value == expected))

    def at_most(self, what: str, value: float, bound: float, unit: str = "", *, timing: bool = False) -> None:
        """Check an upper bound."""
        passed = value <= bound  # False for nan
        self.done.append(Check(what, _number(value, unit), f"<= {_number(bound, unit)}", passed, timing))

    def at_least(self, what: str, value: float, bound: float, unit: str = "", *, timing: bool = False) -> None:
        """Check a lower bound."""
        self.done.append(Check(what, _number(value, unit), f">= {_number(bound, unit)}", value >= bound, timing))

    def measured(self, what: str, value: float, unit: str = "") -> None:
        """Note a value that explains others and has no bound of its own."""
        self.done.append(Check(what, _number(value, unit), "measured", True))

    def clean(self, what: str, violations: Sequence[str]) -> None:
        """Check that a list of violations is empty."""
        shown = "; ".join(violations[:3]) + (f"; {len(violations) - 3} more" if len(violations) > 3 else "")
        self.done.append(Check(what, shown or CLEAN, CLEAN, not violations))

    def not_run(self, what: str) -> None:
        """Note a part of the case that was not run, and why."""
        self.missing.append(what)

    @property
    def lagged(self) -> bool:
        """Whether measured times mean nothing, because the load generator was late itself."""
        return not self.lag <= MOST_LAG

    @property
    def failed(self) -> list[Check]:
        """The checks that did not pass, without times if the load generator lagged."""
        return [check for check in self.done if not check.passed and not (check.timing and self.lagged)]

    @property
    def worth_another_try(self) -> bool:
        """Whether only times are wrong."""
        timed = any(check.timing for check in self.done)
        return all(check.timing for check in self.failed) and (bool(self.failed) or (self.lagged and timed))

    @property
    def verdict(self) -> str:
        """Pass, partial or fail. A case without checks fails."""
        if self.failed or not self.done:
            return FAIL
        return PARTIAL if self.not_counted() else PASS

    def not_counted(self) -> list[str]:
        """Return why a pass is only partial: parts that were not run, and times measured by a late load generator."""
        timed = [check.what for check in self.done if check.timing]
        late = [f"times ({', '.join(timed)}): the generator lagged {self.lag:.0f} ms"] if self.lagged and timed else []
        return [*self.missing, *late]

    def found(self, figures: Sequence[str] = ()) -> str:
        """Return the result in one line: failed checks, the figures, the number of the other checks, what was not run.

        figures: beginnings of the names of checks; each stands for the first check whose name begins so. A figure
            without such a check is named, so that none vanishes from the table when a check is renamed.
        """
        failed = self.failed
        passed = [check for check in self.done if check not in failed]
        first = [next((check for check in self.done if check.what.startswith(name)), None) for name in figures]
        shown = [check for check in first if check in passed and check is not None]
        parts = [f"FAILED {check.what}: {check.value}, bound {check.bound}" for check in failed]
        parts += [f"{check.what}: {check.value}" for check in shown]
        parts += [f"{name}: not measured" for name, check in zip(figures, first, strict=True) if check is None]
        if others := sum(not check.what.startswith(tuple(figures)) for check in passed):
            parts.append(f"{others} {'other ' if figures else ''}check{'s' if others > 1 else ''} passed")
        parts += [f"not run: {what}" for what in self.not_counted()]
        return "; ".join(parts) or "nothing was checked"

    def details(self) -> list[dict[str, Any]]:
        """Return the checks as JSON values."""
        return [asdict(check) for check in self.done]


def best(tries: Sequence[Checks]) -> Checks:
    """Return the try of a case that counts. A try may miss its times only because the machine was busy.

    A try that failed on anything but times counts, even if other tries pass.
    """
    for checks in tries:
        if any(not check.timing for check in checks.failed):
            return checks
    order = (PASS, PARTIAL, FAIL)
    return min(tries, key=lambda checks: (order.index(checks.verdict), len(checks.failed)))


def readable(value: object) -> str:
    """Return a value in words: yes and no for a bool, none for None and for an empty collection, no braces, no `.0`."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float() if value.is_integer():
            return str(int(value))
        case dict():
            return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
        case None:
            return "none"
        case list() | tuple():
            return ", ".join(map(readable, value)) or "none"
        case Set():
            return ", ".join(sorted(map(readable, value))) or "none"
    return str(value)


def _number(value: float, unit: str) -> str:
    if math.isnan(value):
        return "unknown"
    if unit == "s" and 0 < abs(value) < 1:
        value, unit = 1000 * value, "ms"
    number = f"{value:.3g}" if math.isfinite(value) and abs(value) < 100 else f"{value:.0f}"
    return f"{number} {unit}".strip()


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one case, as the table shows it. checks: the fields of each Check."""

    case: str
    found: str
    bound: str
    verdict: str
    checks: list[dict[str, Any]] = field(default_factory=list)


def save(rows: Sequence[Row], folder: Path, command: Sequence[str], now: datetime | None = None) -> Path:
    """Merge the rows into folder/DATE-reliability.json, by the names of their cases, and return the file.

    Each row holds its own commit, command and date, because the rows of a day can come from several runs.
    """
    now = now or datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%d}-reliability.json"
    origin = {"date": now.isoformat(timespec="seconds"), "commit": commit(), "command": shlex.join(command)}
    merged = {row["case"]: row for row in _rows(path)}
    merged |= {row.case: {**asdict(row), **origin} for row in rows}
    write_json(path, {"machine": machine(), **origin, "rows": list(merged.values())})
    return path


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a result file."""
    return [Row(**{name: row[name] for name in Row.__dataclass_fields__}) for row in _rows(path)]


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    except (ValueError, KeyError, TypeError):
        raise LingonError(f"{path}: not a file of results; move it away") from None
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| case | found | bound | verdict |", "|---|---|---|---|"]
    for row in rows:
        cells = (row.case.replace("_", " "), row.found, row.bound, row.verdict)
        lines.append(f"| {' | '.join(_cell(text) for text in cells)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def summary(rows: Sequence[Row]) -> str:
    """Return the number of rows of each verdict."""
    counts = Counter(row.verdict for row in rows)
    shown = [f"{counts[verdict]} {verdict}" for verdict in (PASS, PARTIAL, SKIP, FAIL) if counts[verdict]]
    return f"{len(rows)} run: {', '.join(shown)}"
