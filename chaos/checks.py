"""What a case has found: checks with their bounds, from which the verdict follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

PASS, PARTIAL, SKIP, FAIL = "pass", "partial", "skip", "fail"
CLEAN = "none wrong"
MOST_LAG = 20.0  # milliseconds: beyond it the generator, not the server, was measured


class Skip(Exception):
    """A case cannot be run here; the text says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    timing: whether a busy machine may spoil it, so that it is worth another try
    """

    what: str
    value: str
    bound: str
    passed: bool
    timing: bool = False


@dataclass(slots=True)
class Findings:
    """The checks of a case, what of it was not run, and the generator's own lag in milliseconds."""

    checks: list[Check] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    lag: float = 0.0

    def equal(self, what: str, value: object, expected: object) -> None:
        """A value that has to be just this."""
        self.checks.append(Check(what, str(value), f"= {expected}", value == expected))

    def at_most(self, what: str, value: float, bound: float, unit: str = "", *, timing: bool = False) -> None:
        """A value with a ceiling."""
        passed = value <= bound  # not for nan
        self.checks.append(Check(what, _shown(value, unit), f"<= {_shown(bound, unit)}", passed, timing))

    def at_least(self, what: str, value: float, bound: float, unit: str = "", *, timing: bool = False) -> None:
        """A value with a floor."""
        self.checks.append(Check(what, _shown(value, unit), f">= {_shown(bound, unit)}", value >= bound, timing))

    def clean(self, what: str, violations: Sequence[str]) -> None:
        """No violations, as the checker lists them."""
        shown = "; ".join(violations[:3]) + (f"; {len(violations) - 3} more" if len(violations) > 3 else "")
        self.checks.append(Check(what, shown or CLEAN, CLEAN, not violations))

    def not_run(self, what: str) -> None:
        """A part of the case that could not be run, and why."""
        self.missing.append(what)

    @property
    def void(self) -> bool:
        """Whether times mean nothing, since the generator was late itself."""
        return not self.lag <= MOST_LAG

    @property
    def failed(self) -> list[Check]:
        """The checks that did not pass; times of a void run are none."""
        return [check for check in self.checks if not check.passed and not (check.timing and self.void)]

    @property
    def worth_another_try(self) -> bool:
        """Whether nothing but times is wrong."""
        timed = any(check.timing for check in self.checks)
        return all(check.timing for check in self.failed) and (bool(self.failed) or (self.void and timed))

    @property
    def verdict(self) -> str:
        """Pass, partial or fail; a case that has looked at nothing fails."""
        if self.failed or not self.checks:
            return FAIL
        return PARTIAL if self.not_counted() else PASS

    def not_counted(self) -> list[str]:
        """What keeps a pass from being whole."""
        timed = [check.what for check in self.checks if check.timing]
        void = [f"times ({', '.join(timed)}): the generator lagged {self.lag:.0f} ms"] if self.void and timed else []
        return [*self.missing, *void]

    def figure(self) -> str:
        """All that was found, in one line; what failed first, with its bound."""
        parts = [f"FAILED {check.what}: {check.value}, bound {check.bound}" for check in self.failed]
        passed = [check for check in self.checks if check not in self.failed]
        parts += [f"{check.what}: {check.value}" for check in passed if check.value != CLEAN]
        if clean := list(dict.fromkeys(check.what for check in passed if check.value == CLEAN)):
            parts.append(f"{CLEAN}: {', '.join(clean)}")
        parts += [f"not run: {what}" for what in self.not_counted()]
        return "; ".join(parts) or "nothing was checked"

    def details(self) -> list[dict[str, Any]]:
        """The checks as JSON has them."""
        return [asdict(check) for check in self.checks]


def best(tries: Sequence[Findings]) -> Findings:
    """Of several runs of a case the one that counts: a try fails on times because the machine was busy.

    What a try found wrong besides times is wrong, whatever the others found.
    """
    for found in tries:
        if any(not check.timing for check in found.failed):
            return found
    order = (PASS, PARTIAL, FAIL)
    return min(tries, key=lambda found: (order.index(found.verdict), len(found.failed)))


def _shown(value: float, unit: str) -> str:
    number = f"{value:.3g}" if math.isfinite(value) and abs(value) < 100 else f"{value:.0f}"
    return f"{number} {unit}".strip()
