"""The number of cores that this process may use: its CPU affinity and the CPU quota of its cgroup."""

from __future__ import annotations

import math
import os
from pathlib import Path

MAX_DEFAULT_ENGINES = 4  # engines; up to this many share Python's global lock without waiting for it
CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_MEMBERSHIP = Path("/proc/self/cgroup")


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


def granted_cores(root: Path = CGROUP_ROOT, membership: Path = CGROUP_MEMBERSHIP) -> float | None:
    """The lowest CPU quota of this process's cgroup and its ancestors, in cores; None without a quota.

    root: where the cgroup file systems are mounted
    membership: the file that lists the cgroups of this process
    """
    quotas = [quota for folder in _quota_folders(root, membership) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def _quota_folders(root: Path, membership: Path) -> list[Path]:
    """The folders that may hold a CPU quota, for cgroup v2 and v1: from the process's own cgroup up to the root."""
    folders = [root, root / "cpu"]
    for line in _read_or_empty(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        base = root if not controllers else root / "cpu"
        if not controllers or "cpu" in controllers.split(","):
            own = base / path.lstrip("/")
            folders += [own, *(parent for parent in own.parents if parent.is_relative_to(base))]
    return folders


def _quota(folder: Path) -> float | None:
    """The CPU quota of one cgroup in cores; None without one."""
    # cgroup v2 writes "150000 100000" or "max 100000" into one file.
    quota, _, period = _read_or_empty(folder / "cpu.max").strip().partition(" ")
    if not quota:  # cgroup v1 has two files.
        quota = _read_or_empty(folder / "cpu.cfs_quota_us").strip()
        period = _read_or_empty(folder / "cpu.cfs_period_us").strip()
    if not (quota.isdecimal() and period.isdecimal() and int(period) > 0):
        return None
    return int(quota) / int(period)


def _read_or_empty(path: Path) -> str:
    """The text of a file; empty if the file cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
