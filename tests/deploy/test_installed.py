"""The installation of deploy/install.sh serves as in the image: as an unprivileged user, from read-only files."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.build import COMPILERS, LIBRARY
from tests.support.deploy_files import DEPLOY, environment
from tests.support.repository import ROOT

pytestmark = [pytest.mark.ops, pytest.mark.timeout(600)]
USER = 10001
SPECIAL = stat.S_ISUID | stat.S_ISGID
SYSTEM = "/usr/local/bin:/usr/bin:/bin"  # holds a Python that users other than root may run
UNPRIVILEGED = (
    f"setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs --bounding-set -all --inh-caps -all"
)


def missing() -> str | None:
    """Why these tests cannot run here."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return "only root with setpriv can become another user"
    wanted = re.search(r"^FROM python:(\d+\.\d+)", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert wanted
    code = "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run(["python3", "-c", code], env={"PATH": SYSTEM}, capture_output=True, text=True, check=False)
    return None if found.stdout.strip() == wanted[1] else f"no Python {wanted[1]} with venv in {SYSTEM}"


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """A folder with opt/lingon and models of the image; not below pytest's folder, which other users cannot read."""
    if reason := missing():
        pytest.skip(f"ops: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="lingon-image-"))
    try:
        env = {**os.environ, "PATH": SYSTEM}
        subprocess.run([DEPLOY / "install.sh", "serve", folder / "opt" / "lingon"], env=env, check=True)
        shutil.copytree(ROOT / "models", folder / "models")
        subprocess.run(["chmod", "-R", "u+rwX,go+rX,go-w", folder], check=True)
        yield folder
    finally:
        shutil.rmtree(folder)


def variables(image: Path) -> dict[str, str]:
    """The environment variables of the image, with free ports."""
    values = {name: value.replace("/models", str(image / "models")) for name, value in environment("cpu").items()}
    values["PATH"] = f"{image}/opt/lingon/bin:{SYSTEM}"
    return {
        **values,
        "HOME": "/nonexistent",
        "LINGON_HOST": "127.0.0.1",
        "LINGON_PORT": "0",
        "LINGON_METRICS_PORT": "0",
    }


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*")}


def run(image: Path, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    call = [*UNPRIVILEGED.split(), *command]
    values = {name: value for name, value in variables(image).items() if not name.startswith("LINGON_")}
    return subprocess.run(
        call, env=values, cwd="/", input=text, capture_output=True, text=True, check=False, timeout=60
    )


def test_it_holds_no_torch_no_installer_and_no_build_tool(image):
    code = "import sys, importlib.util as u; print(*(name for name in sys.argv[1:] if u.find_spec(name)))"
    ran = run(
        image, "python", "-c", code, "torch", "onnx", "pip", "setuptools", "hatchling", "onnxruntime", "lingon.serving"
    )
    assert ran.stdout.split() == ["onnxruntime", "lingon.serving"]


def test_a_command_that_is_left_out_says_so(image):
    for verb in ("train", "export", "bench"):
        ran = run(image, "lingon", verb)
        assert ran.returncode == 1
        assert f"lingon {verb} is not part of this installation" in ran.stdout + ran.stderr


def test_no_file_belongs_to_the_user_or_gives_it_more_rights(image):
    special = [path for path in (image / "opt").rglob("*") if path.is_file() and path.lstat().st_mode & SPECIAL]
    assert special == []
    assert [path for path in image.rglob("*") if path.lstat().st_uid == USER] == []


def test_it_has_native_operators_if_a_compiler_was_there(image):
    ran = run(image, "lingon", "doctor", str(image / "models"))
    (found,) = re.findall(r"^native operators: (.*)$", ran.stdout, re.MULTILINE)
    there = any(shutil.which(name, path=SYSTEM) for name in COMPILERS) or LIBRARY.is_file()
    assert found.startswith("not usable: ") is not there


def test_it_serves_as_an_unprivileged_user_from_read_only_files(image):
    before = files(image)
    call = [*UNPRIVILEGED.split(), "lingon", "serve"]
    with subprocess.Popen(
        call, env=variables(image), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            ready = next(line for line in server.stdout if line.startswith("ready: "))
            status = Path(f"/proc/{server.pid}/status").read_text()
            assert f"Uid:\t{USER}\t{USER}\t{USER}\t{USER}" in status
            assert "NoNewPrivs:\t1" in status
            assert "CapEff:\t0000000000000000" in status
            address = ready.split(" on ")[1].split(",")[0]
            assert run(image, "lingon", "healthcheck", "--server", address).returncode == 0
            answer = run(
                image, "lingon", "translate", "--server", address, "--target", "de", text="Tom lives in Boston.\n"
            )
            assert "Boston" in answer.stdout
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=20) == 0
            assert run(image, "lingon", "healthcheck", "--server", address).returncode == 1
        finally:
            if server.poll() is None:
                server.kill()
    assert files(image) == before
