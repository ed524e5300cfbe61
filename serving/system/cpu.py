"""The number of cores that this process may use: its CPU affinity and the CPU quota of its cgroup."""

from __future__ import annotations

import math
import os
from pathlib import Path

from lingon.serving.system.cgroups import MEMBERSHIP, ROOT, control_folders, read_or_empty

MAX_DEFAULT_ENGINES = 4  # engines; up to this many share Python's global lock without waiting for it


def usable_cores() -> int:
    """Whole cores for computing, at least 1.

    A quota is rounded down, for example 1.5 cores to 1: with one thread more, all threads would wait for it at every
    barrier.
    """
    allowed = len(os.sched_getaffinity(0))
    granted = granted_cores()
    return allowed if granted is None else max(min(allowed, math.floor(granted)), 1)


def default_engines() -> int:
    """The default number of engines of a model on the CPU: one per core, at most MAX_DEFAULT_ENGINES."""
    return min(usable_cores(), MAX_DEFAULT_ENGINES)


def threads_per_engine(engines: int) -> int:
    """Threads of each engine, such that all engines together use the usable cores; at least 1."""
    return max(usable_cores() // engines, 1)


def granted_cores(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """The lowest CPU quota of this process's cgroup and its ancestors, in cores; None without a quota.

    root: where the cgroup file systems are mounted
    membership: the file that lists the cgroups of this process
    """
    quotas = [quota for folder in control_folders("cpu", root, membership) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def _quota(folder: Path) -> float | None:
    """The CPU quota of one cgroup in cores; None without one."""
    # cgroup v2 writes "150000 100000" or "max 100000" into one file.
    quota, _, period = read_or_empty(folder / "cpu.max").strip().partition(" ")
    if not quota:  # cgroup v1 has two files.
        quota = read_or_empty(folder / "cpu.cfs_quota_us").strip()
        period = read_or_empty(folder / "cpu.cfs_period_us").strip()
    if not (quota.isdecimal() and period.isdecimal() and int(period) > 0):
        return None
    return int(quota) / int(period)
