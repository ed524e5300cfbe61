"""Cases that are proven by tests of `make test`: pytest runs those tests, and each of them has to pass."""

from __future__ import annotations

import asyncio
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

from chaos.verdict.checks import Checks
from lingon.bench.worker_process import on_cores

ALL_CORES = frozenset(range(os.cpu_count() or 1))
ROOT = Path(__file__).parent.parent


async def run_pytest_cases(checks: Checks, folder: Path, tests: Sequence[str]) -> None:
    """Run tests by their node ids on all cores; each id has to pass without a skip.

    TEST_SCALE=full runs them with counts that take hours, see tests/support/scale.py.
    """
    for number, test in enumerate(tests):
        report = folder / f"pytest-{number}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", test]
        with on_cores(ALL_CORES):
            process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
        exit_code = await process.wait()
        checks.equal(test.rpartition("::")[2], result_of(report, exit_code), "passed")


def result_of(report: Path, exit_code: int) -> str:
    """The result of a JUnit report in words: `passed` only if it holds a test and none failed or was skipped."""
    if not report.exists():
        return f"pytest ended with {exit_code}"
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    counts = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    if exit_code or not counts["tests"] or counts["failures"] or counts["errors"]:
        return f"{counts['tests']} run, {counts['failures'] + counts['errors']} failed"
    return f"{counts['skipped']} skipped" if counts["skipped"] else "passed"
