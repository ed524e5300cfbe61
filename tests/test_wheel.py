"""The wheel holds the package `lingon` alone and works outside the repository; an sdist builds the same wheel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from kernels.build import CARD_LIBRARY, LIBRARY
from tests.support.fixtures import VARIABLES, Environment, create_environment, pip
from tests.support.repository import ROOT

pytestmark = pytest.mark.timeout(900)  # seconds: packages may have to be downloaded
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERBS = sorted(PROJECT["project"]["entry-points"]["lingon.verbs"])
LINKED = (
    "training",
    "export",
    "importers",
    "serving",
    "gateway",
    "bench",
)  # folders of the repository that links in lingon/ point to
MODEL = ROOT / "models" / "en-de"
LIBRARY_NAMES = {library.relative_to(ROOT).as_posix() for library in (LIBRARY, CARD_LIBRARY)}
INSTALLED_FILES = "from importlib.metadata import files; print(*files('lingon'), sep='\\n')"


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the pinned hatchling."""
    environment = create_environment(tmp_path_factory.mktemp("hatchling"))
    pip("--python", environment.python, "install", "--no-compile", *PROJECT["build-system"]["requires"])
    return environment


@pytest.fixture(scope="module")
def sdist(builder: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    folder = tmp_path_factory.mktemp("sdist")
    command = [builder.python, "-m", "hatchling", "build", "--target", "sdist", "--directory", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    return archive


def test_the_wheel_holds_one_package_with_every_module_of_the_linked_folders(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"lingon", f"{wheel.stem.partition('-py3')[0]}.dist-info"}
    modules = {
        f"lingon/{folder}/{path.relative_to(ROOT / folder)}"
        for folder in LINKED
        for path in (ROOT / folder).rglob("*.py")
    }
    assert modules - set(names) == set()
    page = {f"lingon/{path.relative_to(ROOT)}" for path in (ROOT / "gateway" / "page").rglob("*.*")}
    assert page - set(names) == set()
    others = set(names) - page - {"lingon/fetching/catalogue.json"}
    assert [name for name in others if "results" in Path(name).parts or name.endswith((".json", ".svg"))] == []


@pytest.mark.native
def test_a_wheel_with_the_libraries_of_native_operators_has_the_tag_of_its_platform(wheel: Path):
    assert {*zipfile.ZipFile(wheel).namelist()} >= LIBRARY_NAMES
    version = PROJECT["project"]["version"]
    processor = os.uname().machine
    assert re.fullmatch(rf"lingon-{version}-py3-none-manylinux_2_\d+_{processor}\.whl", wheel.name)


@pytest.mark.native
def test_an_installed_lingon_has_native_operators(serve: Environment):
    ran = serve.run("lingon", "doctor", MODEL)
    assert re.search(r"^native operators: (amx|avx|neon|portable)", ran.stdout, re.MULTILINE)


def test_without_a_compiler_the_sdist_makes_the_wheel_for_all_platforms(
    sdist: Path, builder: Environment, wheel: Path, tmp_path: Path
):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    command = [builder.python, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "made"]
    variables = {"PATH": "/nonexistent", "CXX": ""}
    ran = subprocess.run(command, cwd=tree, env=variables, check=True, capture_output=True, text=True)
    (made,) = (tmp_path / "made").iterdir()
    assert made.name == f"lingon-{PROJECT['project']['version']}-py3-none-any.whl"
    assert sorted(zipfile.ZipFile(made).namelist()) == sorted({*zipfile.ZipFile(wheel).namelist()} - LIBRARY_NAMES)
    assert "the wheel is without native operators: no C++ compiler is installed" in ran.stdout + ran.stderr


def test_the_wheel_installs_one_top_level_package(serve: Environment):
    installed = serve.run("python", "-c", INSTALLED_FILES).stdout.split()
    tops = {name.partition("/")[0] for name in installed if not name.startswith("..")}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lingon"}
    assert serve.imports("lingon", *LINKED, "tests") == {"lingon"}


def test_every_verb_of_an_installed_lingon_prints_its_help(serve: Environment):
    program = "sys.exit(any([main([verb, '--help']) for verb in sys.argv[1:]]))"
    ran = serve.run("python", "-c", f"import sys; from lingon.cli.main import main; {program}", *VERBS)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [verb for verb in VERBS if f"Usage: lingon {verb}" not in ran.stdout] == []


@pytest.mark.parametrize("verb", ["inspect", "doctor"])
def test_an_installed_lingon_reads_the_shipped_bundle(serve: Environment, verb: str):
    ran = serve.run("lingon", verb, MODEL)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "en-de" in ran.stdout


def test_an_installed_lingon_translates_in_its_own_process(serve: Environment):
    ran = serve.run("lingon", "translate", "--model", MODEL, "Tom lives in Boston.")
    assert ran.returncode == 0, ran.stderr
    assert "Boston" in ran.stdout


def test_an_installed_lingon_serves_the_shipped_bundle(serve: Environment):
    options = ["--port", "0", "--metrics-port", "0", "--device", "cpu"]
    command = [serve.folder / "bin" / "lingon", "serve", MODEL, *options]
    with subprocess.Popen(command, cwd=serve.folder, env=VARIABLES, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            ready = re.search(r"^ready: .* on (\S+), metrics on ", server.stdout.readline())
            assert ready
            health = serve.run("lingon", "healthcheck", "--server", ready[1])
            translated = serve.run("lingon", "translate", "--server", ready[1], "Tom lives in Boston.")
        finally:
            server.send_signal(signal.SIGTERM)
    assert (health.returncode, translated.returncode, server.returncode) == (0, 0, 0), health.stderr + translated.stderr
    assert "Boston" in translated.stdout


def test_the_sdist_holds_every_source_file_once(sdist: Path):
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if not member.isfile() or member.name.endswith(".so")] == []
    names = {member.name.partition("/")[2] for member in members}
    modules = {
        f"lingon/{folder}/{path.relative_to(ROOT / folder)}"
        for folder in LINKED
        for path in (ROOT / folder).rglob("*.py")
    }
    operators = {
        f"kernels/{path.name}" for path in (ROOT / "kernels").iterdir() if path.suffix in (".cpp", ".h", ".py")
    }
    assert (modules | operators) - names == set()
    assert [name for name in names if name.startswith(tuple(f"{folder}/" for folder in LINKED))] == []
