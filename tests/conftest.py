"""Rules for every test: only a test whose mark allows it may be skipped; any other skip is a failure."""

from __future__ import annotations

import functools
import gc
import os
import resource
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import settings

from kernels.build import NoCompilerError, find_compiler
from lingon.serving.runtime.device import cuda_missing
from tests.support.card_kernels import triton_missing
from tests.support.foreign_clients import missing as foreign_missing
from tests.support.repository import FULL

pytest_plugins = ["tests.support.fixtures"]

# PyTorch reads this when it is first imported, here and in the processes that tests start. The products of tests are
# small, and several threads of a product spend more time waiting for each other than computing if the cores are busy.
os.environ["OMP_NUM_THREADS"] = "1"

# Triton reads this when it is first imported, which transformers does too. The tests of compilation take it away again.
os.environ["TRITON_INTERPRET"] = "1"

# Models are kept for later tests, each with descriptors of its mapped weights: together more than the 1,024 that many
# systems allow at first.
MOST_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))

# There is no time limit for an example, because a busy machine delays any of them. The examples are the same in every
# run: new ones are tried only with TEST_SCALE=full, which has time for many.
settings.register_profile("lingon", deadline=None, derandomize=not FULL)
settings.load_profile("lingon")


@functools.cache
def gpu_missing() -> str | None:
    """Why tests marked `gpu` cannot run here."""
    return cuda_missing()


@functools.cache
def native_missing() -> str | None:
    """Why tests marked `native` cannot run here."""
    try:
        find_compiler()
    except NoCompilerError as error:
        return str(error)
    return None


def peer_missing() -> str | None:
    """None: every test marked `peer` skips itself if the peer that it needs is missing."""
    return None


def ops_missing() -> str | None:
    """None: every test marked `ops` skips itself if the tool that it needs is missing."""
    return None


MAY_SKIP: dict[str, Callable[..., str | None]] = {
    "gpu": gpu_missing,
    "native": native_missing,
    "peer": peer_missing,
    "ops": ops_missing,
    "foreign": foreign_missing,
    "triton": triton_missing,
}
"""By mark: a function that takes the arguments of the mark, and returns why the test cannot run here."""


def pytest_collection_finish() -> None:
    """Leave what is imported out of the collections of garbage, which would walk through all of it again and again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, missing in MAY_SKIP.items():
        marker = item.get_closest_marker(mark)
        if marker and (reason := missing(*marker.args)):
            pytest.skip(f"{mark}: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not any(item.get_closest_marker(mark) for mark in MAY_SKIP):
        return _failed(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _failed(report) if report.skipped else report


def _failed(report: Any) -> Any:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"only tests marked {', '.join(MAY_SKIP)} may be skipped, this one was: {reason}"
    return report
