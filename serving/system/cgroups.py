"""The control groups of this process, whose files hold its limits of CPU and memory."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


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
    """Return the text of a file; empty if the file cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
