"""The cores and the memory that this process may use: by its CPU affinity and the limits of its control groups."""

from __future__ import annotations

import math
import os
from pathlib import Path

MAX_DEFAULT_ENGINES = 4  # of one process; up to this many share Python's global lock without waiting for it
UNLIMITED = 1 << 60  # bytes; cgroup v1 writes a number above this for no limit
ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Whole cores for computing, at least 1.

    A quota is rounded down, for example 1.5 cores to 1: with one thread more, all threads would wait for it at every
    barrier.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # not on Linux
    granted = granted_cores()
    return allowed if granted is None else max(min(allowed, math.floor(granted)), 1)


def granted_cores(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """Return the lowest CPU quota of this process's cgroup and its ancestors, in cores, or None without a quota.

    root: where the cgroup file systems are mounted
    membership: the file that lists the cgroups of this process
    """
    quotas = [quota for folder in control_folders("cpu", root, membership) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def _quota(folder: Path) -> float | None:
    """Return the CPU quota of one cgroup in cores, or None without one."""
    # cgroup v2 writes "150000 100000" or "max 100000" into one file.
    quota, _, period = read_or_empty(folder / "cpu.max").strip().partition(" ")
    if not quota:  # cgroup v1 has two files.
        quota = read_or_empty(folder / "cpu.cfs_quota_us").strip()
        period = read_or_empty(folder / "cpu.cfs_period_us").strip()
    if not (quota.isdecimal() and period.isdecimal() and int(period) > 0):
        return None
    return int(quota) / int(period)


def resident_bytes() -> int:
    """Return the memory that this process has, in bytes, or 0 where the system does not tell."""
    pages = read_or_empty(Path("/proc/self/statm")).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def granted_bytes(root: Path = ROOT, membership: Path = MEMBERSHIP) -> int | None:
    """Return the lowest memory limit of this process's cgroup and its ancestors, in bytes, or None without a limit.

    root, membership: see `control_folders`
    """
    names = ("memory.max", "memory.limit_in_bytes")  # of cgroup v2 and v1
    found = [
        read_or_empty(folder / name).strip() for folder in control_folders("memory", root, membership) for name in names
    ]
    limits = [int(each) for each in found if each.isdecimal() and int(each) < UNLIMITED]
    return min(limits, default=None)


def free_bytes() -> int:
    """Return the bytes of memory that new processes could take: what is available, and no more than the limit leaves.

    The second is the limit without this process alone: what others in its group have is not known.
    """
    for line in read_or_empty(Path("/proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            available = int(value.split()[0]) * 1024
            limit = granted_bytes()
            return available if limit is None else max(min(available, limit - resident_bytes()), 0)
    return 0


def control_folders(controller: str, root: Path, membership: Path) -> list[Path]:
    """Return the folders that may hold a limit, for cgroup v2 and v1: from the process's own cgroup up to the root.

    controller: cpu or memory
    root: where the cgroup file systems are mounted; membership: the file that lists the cgroups of this process
    """
    folders = [root, root / controller]
    for line in read_or_empty(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        base = root if not controllers else root / controller
        if not controllers or controller in controllers.split(","):
            own = base / path.lstrip("/")
            folders += [own, *(parent for parent in own.parents if parent.is_relative_to(base))]
    return folders


def read_or_empty(path: Path) -> str:
    """Return the text of a file, empty if the file cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
