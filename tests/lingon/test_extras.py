"""The command that installs an extra, from where Lingon itself was installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lingon.extras import install_command
from tests.support.repository import ROOT

Installed = Callable[[Any], None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Puts an installation first on the path, with this direct_url.json; None: without one, as from an index."""

    def put(origin: Any) -> None:
        folder = tmp_path / "site" / "lingon-9.9.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: lingon\nVersion: 9.9\n")
        if origin is not None:
            (folder / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)  # an environment that is active: its pip comes first

    return put


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "no JSON",
        [],
        {},
        {"url": "https://example.org/lingon.whl", "archive_info": {}},
        {"url": "file:///no/such/folder", "dir_info": {"editable": True}},
    ],
)
def test_without_a_folder_of_its_own_an_extra_comes_from_the_index(installed: Installed, origin: Any) -> None:
    installed(origin)
    assert install_command("train") == "pip install 'lingon[train]'"


def test_an_extra_of_a_clone_is_installed_from_the_clone(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "a clone"
    clone.mkdir()
    installed({"url": clone.as_uri(), "dir_info": {"editable": True}})
    assert install_command("train") == f"pip install -e '{clone}[train]'"
    monkeypatch.chdir(clone)
    assert install_command("train") == "pip install -e '.[train]'"


def test_an_extra_of_a_folder_or_a_wheel_is_installed_from_there(installed: Installed, tmp_path: Path) -> None:
    installed({"url": tmp_path.as_uri(), "dir_info": {}})
    assert install_command("http") == f"pip install '{tmp_path}[http]'"
    wheel = tmp_path / "lingon-9.9-py3-none-any.whl"
    wheel.touch()
    installed({"url": wheel.as_uri(), "archive_info": {}})
    assert install_command("http") == f"pip install '{wheel}[http]'"


def test_the_pip_of_an_environment_that_is_not_active_is_named_by_its_path(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(None)
    monkeypatch.delenv("VIRTUAL_ENV")
    environment = tmp_path / ".venv"
    monkeypatch.setattr(sys, "prefix", str(environment))
    assert install_command("serve") == "pip install 'lingon[serve]'", "it has no pip"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "pip").touch()
    assert install_command("serve") == f"{environment}/bin/pip install 'lingon[serve]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("serve") == ".venv/bin/pip install 'lingon[serve]'"


def test_the_extra_gpu_gets_an_environment_of_its_own_beside_the_cpu_build(monkeypatch):
    monkeypatch.setattr("lingon.extras._origin", lambda: None)
    monkeypatch.setattr("lingon.extras._pip", lambda: "pip")
    own = "python3 -m venv .venv-gpu && .venv-gpu/bin/pip install 'lingon[gpu]'"
    assert install_command("gpu") == own
    monkeypatch.setattr("lingon.extras._has_cpu_build", lambda: False)
    assert install_command("gpu") == "pip install 'lingon[gpu]'"


ELSEWHERE = """
import sys
import lingon.cli.translate, lingon.client.model, sysconfig, urllib.request  # with what they import on the real system
from lingon.cli.main import main
sysconfig.get_config_vars()
sys.platform = {system!r}
sys.exit(main({arguments!r}))
"""


def test_doctor_says_that_a_server_cannot_start_on_another_system():
    code = ELSEWHERE.format(system="darwin", arguments=["doctor", str(ROOT / "models" / "en-de")])
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "\nsystem: not usable: a server needs Linux, and this is macOS on " in ran.stdout
    assert ran.stdout.endswith("\nresult: `lingon serve` cannot start, see above\n")


@pytest.mark.parametrize(("system", "name"), [("darwin", "macOS"), ("win32", "Windows"), ("freebsd14", "freebsd14")])
@pytest.mark.parametrize("arguments", [["serve", "models/en-de"], ["translate", "--model", "models/en-de", "Tom"]])
def test_what_needs_linux_says_so_on_another_system(system: str, name: str, arguments: list[str]):
    code = ELSEWHERE.format(system=system, arguments=arguments)
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    user = "lingon serve" if arguments[0] == "serve" else "a model in this process"
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"lingon: error: {user} needs Linux, and this is {name} on ")
    assert ran.stderr.count("\n") == 1
