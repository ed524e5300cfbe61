"""Entry points of installed packages, and the error and the command for a package that an extra would install."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points, version
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lingon.errors import LingonError

GPU_ENVIRONMENT = ".venv-gpu"
ON_LINUX = {"serve", "gpu", "http", "bulk", "ray", "train", "export", "import", "bench"}
"""The extras whose code needs Linux: its schedulers, its control groups, its files in /proc."""


def find_entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; `extras` of each names the extra that it needs."""
    return {entry.name: entry for entry in entry_points(group=group)}


def linux_missing() -> str | None:
    """Return what other system than Linux this is and what runs here, in one line, or None on Linux."""
    if sys.platform == "linux":
        return None
    system = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
    return (
        f"this is {system} on {platform.machine()}: run it on Linux, in a container or in WSL; here the client runs, "
        "`lingon translate --server HOST:PORT` and lingon.Client"
    )


def check_system(user: str, extras: Sequence[str]) -> None:
    """Raise LingonError on another system than Linux, if the extra that comes first needs it.

    user: as for name_missing_extra
    """
    if extras and extras[0] in ON_LINUX and (missing := linux_missing()):
        raise LingonError(f"{user} needs Linux, and {missing}")


@contextmanager
def name_missing_extra(user: str, extras: Sequence[str]) -> Iterator[None]:
    """Turn a third-party module that is missing inside the block into an error of one line that names the extra.

    user: what needs the module, as a person would type it: `lingon train`
    extras: the extra that installs the module comes first; without any, the ModuleNotFoundError is not changed
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not module or module == "lingon" or not extras:
            raise
        extra = extras[0]
        raise LingonError(
            f"{user} needs what the extra '{extra}' installs ({module} is missing): {install_command(extra)}"
        ) from error


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation, from where Lingon itself was installed.

    Without this a user of a clone would be sent to the package index, which may have another package of that name.
    The extra gpu gets an environment of its own if this one has the extra serve, which excludes it.
    """
    pip, origin = _pip(), _origin()
    if extra == "gpu" and _has_cpu_build():
        pip = f"python3 -m venv {GPU_ENVIRONMENT} && {GPU_ENVIRONMENT}/bin/pip"
    if origin is None:
        return f"{pip} install 'lingon[{extra}]'"
    path, editable = origin
    return f"{pip} install {'-e ' if editable else ''}{shlex.quote(f'{_shown(path)}[{extra}]')}"


def _has_cpu_build() -> bool:
    """Return whether this environment has ONNX Runtime without CUDA."""
    try:
        return bool(version("onnxruntime"))
    except PackageNotFoundError:
        return False


def _origin() -> tuple[Path, bool] | None:
    """Return the folder or wheel that Lingon was installed from, and whether it is editable, or None if it was a
    package index.

    pip records it in direct_url.json (PEP 610).
    """
    try:
        url = json.loads(distribution("lingon").read_text("direct_url.json") or "{}")
        parts = urlsplit(url.get("url", ""))
    except (PackageNotFoundError, ValueError, AttributeError):
        return None
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or not path.exists():
        return None
    return path, bool(url.get("dir_info", {}).get("editable"))


def _pip() -> str:
    """Return the pip of this environment, by its path if another one may come first."""
    own = Path(sys.prefix) / "bin" / "pip"
    if not own.exists() or os.environ.get("VIRTUAL_ENV") == sys.prefix or sys.prefix == sys.base_prefix:
        return "pip"
    return shlex.quote(_shown(own))


def _shown(path: Path) -> str:
    """Return a path as a user in this folder would type it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
