"""Fixtures of all tests: virtual environments with Lingon installed, the library of native operators, and pages of the
documentation whose commands have run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernels.build import LIBRARY, build
from lingon.serving.runtime.device import library
from tests.support import card_emulation
from tests.support.card_kernels import Interpreter
from tests.support.card_kernels import interpreter as started_interpreter
from tests.support.card_launcher import Card, chosen_card
from tests.support.pages import blocks, session
from tests.support.repository import ROOT

VARIABLES = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"OMP_NUM_THREADS": "1"}
PINS = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_BUILD_CONSTRAINT": str(ROOT / "constraints.txt")}


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def run(self, program: object, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run one of its programs outside the repository, so that only installed modules can be imported."""
        command = [str(self.folder / "bin" / str(program)), *map(str, arguments)]
        return subprocess.run(
            command, cwd=self.folder, env=VARIABLES, capture_output=True, text=True, timeout=120, check=False
        )

    def imports(self, *modules: str) -> set[str]:
        """Return the modules among these that can be imported."""
        code = "import sys, importlib.util as u; print(*(m for m in sys.argv[1:] if u.find_spec(m)))"
        return set(self.run("python", "-c", code, *modules).stdout.split())


MakeEnvironment = Callable[..., Environment]


def create_environment(folder: Path) -> Environment:
    """Return an empty virtual environment, without pip: the pip of the environment that runs the tests installs into
    it.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return Environment(folder)


def pip(*arguments: object) -> None:
    """Run pip with the pinned versions."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **PINS}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def install(environment: Environment, wheel: Path, *extras: str) -> None:
    """Install the wheel with some extras, without compiling bytecode: for all of torch it takes longer than its use."""
    requirement = f"lingon[{','.join(extras)}] @ {wheel.as_uri()}" if extras else wheel
    pip("--python", environment.python, "install", "--no-compile", requirement)


def build_wheel(source: Path, folder: Path) -> Path:
    """Return the wheel of a source tree or of a source archive."""
    pip("wheel", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the repository."""
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def make_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeEnvironment]:
    """Creates an environment with some extras, or with none."""
    folders: list[Path] = []

    def make(*extras: str) -> Environment:
        folders.append(tmp_path_factory.mktemp("-".join(["lingon", *extras])))
        environment = create_environment(folders[-1])
        install(environment, wheel, *extras)
        return environment

    yield make
    # In the background: on a disk that discards every freed block, this takes longer than all the tests.
    subprocess.run(["sh", "-c", 'rm -rf "$@" > /dev/null 2>&1 &', "rm", *folders], check=True)


@pytest.fixture(scope="session")
def base(make_environment: MakeEnvironment) -> Environment:
    """Lingon without extras."""
    return make_environment()


@pytest.fixture(scope="session")
def serve(make_environment: MakeEnvironment) -> Environment:
    """Lingon with the extra `serve`."""
    return make_environment("serve")


@pytest.fixture(scope="session")
def train(make_environment: MakeEnvironment) -> Environment:
    """Lingon with the extra `train`."""
    return make_environment("train")


@pytest.fixture(scope="session")
def native_library() -> Path:
    """The library as a server of this repository loads it."""
    build()
    library.cache_clear()  # it may have been asked for before the library was there
    return LIBRARY


FollowPage = Callable[[Path], Path]


@pytest.fixture(scope="session")
def follow_page(tmp_path_factory: pytest.TempPathFactory) -> FollowPage:
    """Runs the commands of a page in their order, once for all tests, and returns the folder where they ran."""
    folders: dict[Path, Path] = {}

    def follow(page: Path) -> Path:
        if page not in folders:
            folder = tmp_path_factory.mktemp(page.stem)
            with session(folder) as reader:
                for block in blocks(page):
                    reader.run(block)
            folders[page] = folder
        return folders[page]

    return follow


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter | Card]:
    """Triton's interpreter, in a process of its own, or the card that LINGON_TEST_KERNELS names."""
    with chosen_card() as card:
        if card is not None:
            yield card
            return
        with started_interpreter() as found:
            yield found


CARDS = (
    pytest.param("emulated", marks=[pytest.mark.native, pytest.mark.triton]),
    pytest.param("real", marks=[pytest.mark.native, pytest.mark.gpu]),
)


@pytest.fixture(scope="module", params=CARDS)
def card(request: pytest.FixtureRequest) -> Iterator[card_emulation.Card]:
    """A card that runs the kernels of kernels/card: an emulated one, and that of this machine."""
    if request.param == "real":
        yield card_emulation.RealCard()
    else:
        with card_emulation.emulated_card() as made:
            yield made
