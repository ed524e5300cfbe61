"""Cases that tests of `make test` prove: pytest runs those tests, and each has to pass."""

from __future__ import annotations

import asyncio
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from chaos.checks import Findings
from lingon.bench.worker_process import on_cores

EVERY = frozenset(range(os.cpu_count() or 1))
ROOT = Path(__file__).parent.parent


async def gate(found: Findings, folder: Path, tests: Sequence[str]) -> None:
    """Run tests by their node ids, on all cores; each id has to pass without a skip.

    TEST_SCALE=full has them do what takes hours, see tests/support/scale.py.
    """
    for number, test in enumerate(tests):
        report = folder / f"gate-{number}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", test]
        with on_cores(EVERY):
            process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
        code = await process.wait()
        found.equal(test.rpartition("::")[2], outcome(report, code), "passed")


def outcome(report: Path, code: int) -> str:
    """What became of the tests of a report of pytest's: passed, if there is one, and each of them did."""
    if not report.exists():
        return f"pytest ended with {code}"
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    counts = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    if code or not counts["tests"] or counts["failures"] or counts["errors"]:
        return f"{counts['tests']} run, {counts['failures'] + counts['errors']} failed"
    return f"{counts['skipped']} skipped" if counts["skipped"] else "passed"
