"""A release of the package: what it refuses, which archives are fit for it, and the whole of it in a clone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.fixtures import Environment, create_environment, pip
from tests.support.repository import ROOT

pytestmark = pytest.mark.timeout(900)  # seconds: packages may have to be downloaded
CARD = "lingon/serving/runtime/lingon_card.so"
WHO = ("-c", "user.name=a", "-c", "user.email=a@example.com")


def git(tree: Path, *arguments: str) -> str:
    ran = subprocess.run(["git", *WHO, *arguments], cwd=tree, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def commit(tree: Path) -> None:
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "a state")


def run(python: Path | str, tree: Path, script: str, *arguments: object, **variables: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a script of a tree."""
    command = [python, "-m", f"scripts.{script}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": "", **variables}
    ran = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def date_changes(tree: Path) -> None:
    """Give the newest section of the changelog a date, as a person does before a release."""
    path = tree / "CHANGELOG.md"
    dated = re.sub(
        r"^(## \S+) \(.*\)$", r"\1 (2026-12-01)", path.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE
    )
    path.write_text(dated, encoding="utf-8")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the tools of a release, by their hashes, as `make release` makes it."""
    environment = create_environment(tmp_path_factory.mktemp("release-tools"))
    lock = ROOT / "deploy" / "locks" / "release.txt"
    pip("--python", environment.python, "install", "--no-compile", "--require-hashes", "--requirement", lock)
    return environment


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with what the refusals of a release look at."""
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    for name in (".gitignore", "pyproject.toml", "CHANGELOG.md", "scripts/release.py", "scripts/check_archives.py"):
        shutil.copy(ROOT / name, tree / name)
    git(tree, "init", "--quiet")
    date_changes(tree)
    commit(tree)
    return tree


def without_date(tree: Path) -> None:
    path = tree / "CHANGELOG.md"
    path.write_text(path.read_text(encoding="utf-8").replace("(2026-12-01)", "(not yet released)"), encoding="utf-8")
    commit(tree)


def with_a_tag_elsewhere(tree: Path) -> None:
    version = re.search(r'^version = "(.*)"$', (tree / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version
    git(tree, "tag", f"v{version[1]}")
    commit(tree)


def with_other_archives(tree: Path) -> None:
    (tree / "dist").mkdir()
    (tree / "dist" / "lingon-0.0.1.tar.gz").touch()
    commit(tree)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: (tree / "README.md").touch(), "there are changes that are not committed"),
        (without_date, r"CHANGELOG\.md must have the line '## \S+ \(YEAR-MONTH-DAY\)'"),
        (with_a_tag_elsewhere, r"the tag v\S+ is on another commit"),
        (with_other_archives, "dist: must be empty or not there"),
    ],
)
def test_a_state_that_is_no_release_is_refused(checkout: Path, change: Callable[[Path], object], message: str):
    change(checkout)
    before = git(checkout, "tag", "--list")
    code, printed, error = run(sys.executable, checkout, "release", "--platform", "any")
    assert (code, printed) == (1, "")
    assert re.match(rf"lingon: error: .*{message}", error)
    assert error.count("\n") == 1
    assert git(checkout, "tag", "--list") == before


def test_a_missing_compiler_is_named_with_its_package(checkout: Path, tmp_path: Path):
    (tmp_path / "bin").mkdir()
    git_alone = shutil.which("git")
    assert git_alone
    (tmp_path / "bin" / "git").symlink_to(git_alone)
    _, _, error = run(sys.executable, checkout, "release", "--platform", "aarch64", PATH=str(tmp_path / "bin"))
    named = "aarch64-linux-gnu-g++ is not installed, on Debian: apt-get install g++-aarch64-linux-gnu"
    assert error == f"lingon: error: {named}\n"


def altered(wheel: Path, folder: Path, name: str, changes: Mapping[str, bytes | None]) -> Path:
    """A copy of a wheel with another name, and with files that are replaced, or left out if there is no content."""
    made = folder / name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for each in source.namelist():
            content = changes.get(each, source.read(each))
            if content is not None:
                target.writestr(each, content)
        for each in changes.keys() - set(source.namelist()):
            target.writestr(each, changes[each] or b"")
    return made


@pytest.mark.native
def test_the_wheel_of_the_repository_is_fit_for_a_release(tools: Environment, wheel: Path):
    assert run(tools.python, ROOT, "check_archives", wheel) == (0, f"checked: {wheel.name}\n", "")


@pytest.mark.native
@pytest.mark.parametrize(
    ("platform", "changes", "message"),
    [
        ("manylinux_2_5", {}, r"needs glibc 2\.18, and its name promises 2\.5"),
        ("manylinux_2_34", {}, r"glibc must be 2\.28 at most, as for ONNX Runtime, got 2\.34"),
        ("linux", {}, "its platform must be any, or manylinux_2_N on x86_64 or aarch64"),
        ("", {CARD: None}, f"lacks {CARD}"),
        ("", {"lingon/py.typed": None}, r"lacks lingon/py\.typed"),
        ("any", {}, r"is for all platforms, and holds lingon/serving/runtime/lingon_card\.so, "),
    ],
)
def test_a_wheel_that_would_not_work_everywhere_is_refused(
    tools: Environment, wheel: Path, tmp_path: Path, platform: str, changes: Mapping[str, bytes | None], message: str
):
    processor = os.uname().machine
    name = wheel.name
    if platform:
        tag = platform if platform == "any" else f"{platform}_{processor}"
        name = re.sub(r"py3-none-.*\.whl$", f"py3-none-{tag}.whl", wheel.name)
    code, _, error = run(tools.python, ROOT, "check_archives", altered(wheel, tmp_path, name, changes))
    assert code == 1
    assert re.match(rf"lingon: error: {re.escape(name)}: {message}", error)
    assert error.count("\n") == 1


def test_an_archive_of_another_version_is_refused(tools: Environment, tmp_path: Path):
    (tmp_path / "lingon-99.0.tar.gz").touch()
    code, _, error = run(tools.python, ROOT, "check_archives", tmp_path / "lingon-99.0.tar.gz")
    assert code == 1
    assert re.match(r"lingon: error: lingon-99\.0\.tar\.gz: is not of version ", error)


def test_a_release_builds_checks_installs_and_tags_a_commit_and_uploads_nothing(tools: Environment, tmp_path: Path):
    """With the wheel for all platforms alone: the others take a compiler a minute each."""
    tree = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth", "1", ROOT.as_uri(), str(tree))
    date_changes(tree)
    commit(tree)
    git(tree, "config", "user.name", "a")
    git(tree, "config", "user.email", "a@example.com")
    code, printed, error = run(tools.python, tree, "release", "--platform", "any")
    assert (code, error) == (0, "")
    version = re.search(r"tagged v(\S+); publish the tag with: git push origin v\1\n", printed)
    assert version
    made = sorted(path.name for path in (tree / "dist").iterdir())
    assert made == [f"lingon-{version[1]}-py3-none-any.whl", f"lingon-{version[1]}.tar.gz"]
    assert f"installed {made[0]} and translated with it\n" in printed
    assert "left out: the wheels for x86_64, aarch64; " in printed
    (upload,) = re.findall(r"^nothing is uploaded; to do that: (.*)$", printed, re.MULTILINE)
    assert upload.startswith(f"{tools.python} -m twine upload ")
    assert git(tree, "tag", "--points-at", "HEAD") == f"v{version[1]}"
    assert git(tree, "status", "--porcelain") == ""
