"""The `lingon` command: light imports, order of verbs, errors of one line, names of missing extras."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import lingon
from lingon.cli.main import ORDER, main
from lingon.cli.options import OptionGroup, with_option_groups
from lingon.errors import SettingsError
from lingon.extras import install_command
from tests.support.repository import ROOT

HEAVY = {"torch", "onnxruntime", "onnx", "numpy", "grpc", "sentencepiece", "sacrebleu", "tensorboard", "matplotlib"}

VERBS = """
import enum, sys, time, typer
from typing import Annotated
from lingon.errors import LingonError, SettingsError

def good(): "Works."; print("done")
def bad(): raise LingonError("the cow is\\n  ill")
def wrong(): raise SettingsError("dim must be even, got 3")
def heavy(): import a_library_not_installed.part
def ours(): import lingon.training.a_module_not_written
def unreadable(): open("/nowhere/file")
def interrupted(): raise KeyboardInterrupt
def endless():
    print("ready", flush=True)
    while True: time.sleep(0.01)
def count(number: Annotated[int, typer.Option(min=1)] = 1, kind: enum.StrEnum("Kind", ["A", "B"]) = "a"): pass
def chatty():
    for _ in range(100_000): print("a line that nobody reads")
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs one of the verbs above; returns exit code, stdout and stderr."""
    (tmp_path / "toy_verbs.py").write_text(VERBS)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("toy_verbs", None)

    def call(name: str, *arguments: str, value: str | None = None) -> tuple[int, str, str]:
        entry = EntryPoint(name, value or f"toy_verbs:{name} [serve]", "lingon.verbs")
        code = main([name, *arguments], [entry, EntryPoint("good", "toy_verbs:good", "lingon.verbs")])
        return code, *capsys.readouterr()

    return call


def test_a_verb_that_returns_is_exit_code_0(run):
    assert run("good") == (0, "done\n", "")


def test_an_error_of_ours_is_one_line_and_exit_code_1(run):
    assert run("bad") == (1, "", "lingon: error: the cow is ill\n")


def test_a_wrong_setting_is_one_line_and_exit_code_2(run):
    assert SettingsError.exit_code == 2
    assert run("wrong") == (2, "", "lingon: error: dim must be even, got 3\n")


@pytest.mark.parametrize("arguments", [["--colour"], ["unasked"], ["--number"]])
def test_wrong_usage_is_one_line_that_names_the_help_and_exit_code_2(run, arguments):
    code, out, err = run("count", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("lingon: error: ")
    assert err.endswith("(see lingon count --help)\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--number", "0", "must be greater than or equal to 1, got 0"),
        ("--number", "x", "must be a valid integer, unable to parse string as an integer, got x"),
        ("--kind", "c", "'c' is not one of 'a', 'b'."),
    ],
)
def test_a_wrong_value_of_an_option_is_named_with_its_bound(run, option, value, message):
    assert run("count", option, value) == (
        2,
        "",
        f"lingon: error: Invalid value for '{option}': {message} (see lingon count --help)\n",
    )


def test_an_unknown_verb_is_one_line_and_exit_code_2(capsys):
    assert main(["transalte"], []) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_no_verb_at_all_prints_the_help_and_is_exit_code_2(run, capsys):
    assert main([], [EntryPoint("good", "toy_verbs:good", "lingon.verbs")]) == 2
    assert "Works." in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_one_line(run):
    assert run("unreadable") == (1, "", "lingon: error: /nowhere/file: No such file or directory\n")


def test_an_interrupted_verb_is_exit_code_130_without_a_message(run):
    assert run("interrupted") == (130, "", "")


@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [
        (">&-", 0, ""),
        (">/dev/full", 1, "lingon: error: standard output: No space left on device\n"),
        (">/dev/full 2>&-", 1, ""),
    ],
)
def test_an_output_that_cannot_be_written_is_one_line_at_most(redirection, code, told):
    line = f"{shlex.quote(sys.executable)} -m lingon --version {redirection}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", told)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_that_cannot_be_written_name_standard_output(unbuffered, lingon):
    line = f"echo one | {shlex.quote(sys.executable)} -m lingon translate >/dev/full"
    environment = {**lingon.environment, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["sh", "-c", line], capture_output=True, env=environment, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "lingon: error: standard output: No space left on device\n")


def test_a_missing_library_names_the_extra_that_brings_it(run):
    assert run("heavy") == (
        1,
        "",
        "lingon: error: lingon heavy needs what the extra 'serve' installs (a_library_not_installed is missing): "
        f"{install_command('serve')}\n",
    )


def test_a_missing_library_that_the_verb_itself_imports_names_the_extra_too(run, tmp_path):
    (tmp_path / "eager_verbs.py").write_text("import a_library_not_installed")
    code, _, err = run("eager", "--any", "argument", value="eager_verbs:eager [train]")
    assert code == 1
    assert "needs what the extra 'train' installs (a_library_not_installed is missing)" in err


def test_a_missing_module_of_lingon_is_not_reported_as_a_missing_extra(run):
    with pytest.raises(ModuleNotFoundError, match="a_module_not_written"):
        run("ours")


def test_a_missing_library_that_no_extra_installs_is_raised_unchanged(run):
    with pytest.raises(ModuleNotFoundError, match="a_library_not_installed"):
        run("heavy", value="toy_verbs:heavy")


def test_a_verb_whose_package_is_missing_is_one_line(run):
    code, _, err = run("serve", "models/en-de", "--device", "cpu", value="no_such_room.cli:serve [serve]")
    assert code == 1
    assert err == "lingon: error: lingon serve is not part of this installation: No module named 'no_such_room'\n"


def test_the_help_says_which_verbs_the_installation_leaves_out(capsys):
    left_out = EntryPoint("train", "lingon.no_such_package.cli:train [train]", "lingon.verbs")
    assert main(["--help"], [left_out]) == 0
    assert "(not part of this installation)" in capsys.readouterr().out


GROUP = """
import typer

group = typer.Typer(help="Several verbs.")

@group.command("count")
def count(to: int = 2): "Counts."; print(*range(to))

@group.command("heavy")
def heavy(): import a_library_not_installed
"""


@pytest.fixture
def run_group(run, tmp_path):
    """Runs a verb of a group."""
    (tmp_path / "toy_group.py").write_text(GROUP)
    sys.modules.pop("toy_group", None)
    return lambda *arguments: run("several", *arguments, value="toy_group:group [train]")


def test_an_entry_point_may_be_a_group_of_verbs_with_options_of_their_own(run_group):
    assert run_group("count", "--to", "3") == (0, "0 1 2\n", "")


def test_a_group_alone_prints_its_help_and_is_exit_code_2(run_group):
    code, out, err = run_group()
    assert (code, err) == (2, "")
    assert "Several verbs." in out
    assert "Counts." in out


def test_wrong_usage_of_a_groups_verb_names_that_verbs_help(run_group):
    code, _, err = run_group("count", "--from", "1")
    assert code == 2
    assert err.endswith("(see lingon several count --help)\n")


def test_a_missing_library_of_a_groups_verb_names_verb_and_extra(run_group):
    code, _, err = run_group("heavy")
    assert code == 1
    assert err.startswith("lingon: error: lingon several heavy needs what the extra 'train' installs")


def test_a_verb_that_cannot_be_loaded_does_not_affect_others(run, tmp_path, capsys):
    (tmp_path / "faulty_verbs.py").write_text("1 / 0")
    entries = [EntryPoint("faulty", "faulty_verbs:faulty", ""), EntryPoint("good", "toy_verbs:good", "")]
    assert main(["good"], entries) == 0
    with pytest.raises(ZeroDivisionError):
        main(["faulty"], entries)


def test_the_version_is_printed_without_loading_a_verb(monkeypatch, capsys):
    monkeypatch.setattr(EntryPoint, "load", lambda entry: pytest.fail(f"{entry.name} is loaded"))
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "lingon 0.1.0\n"


def test_the_help_lists_the_verbs_in_the_order_of_the_work(capsys):
    assert main(["--help"]) == 0
    words = [line.strip("│ ").partition(" ")[0] for line in capsys.readouterr().out.splitlines()]
    assert [word for word in words if word in ORDER] == list(ORDER)


def test_every_verb_of_the_project_is_installed_with_its_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["entry-points"]["lingon.verbs"]
    installed = {entry.name: entry for entry in entry_points(group="lingon.verbs")}
    assert set(ORDER) == set(declared) == set(installed)
    for entry in installed.values():
        assert set(entry.extras) <= set(project["optional-dependencies"])
        assert declared[entry.name] == entry.value


BENCHES = (["bench", verb, "--help"] for verb in ("decode", "serve", "train"))
LIGHT = [*([verb, "--help"] for verb in ORDER), *BENCHES, ["--version"], ["--help"]]


def test_help_loads_nothing_heavy():
    """One process for all, since no verb may load it: the first line names the one that does."""
    code = [
        "import sys",
        "from lingon.cli.main import main",
        f"for arguments in {LIGHT}:",
        "    assert main(arguments) == 0",
        f"    print('loaded by', arguments, {HEAVY} & set(sys.modules), file=sys.stderr)",
    ]
    answer = subprocess.run([sys.executable, "-c", "\n".join(code)], capture_output=True, text=True, check=True)
    assert answer.stderr.splitlines() == [f"loaded by {arguments} set()" for arguments in LIGHT]


@contextmanager
def started(folder: Path, verb: str) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "toy_verbs.py").write_text(VERBS)
    names = f"[EntryPoint(name, f'toy_verbs:{{name}}', '') for name in ('good', '{verb}')]"
    lines = [
        "import sys",
        "from importlib.metadata import EntryPoint",
        "from lingon.cli.main import main",
        f"sys.exit(main(['{verb}'], {names}))",
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", "\n".join(lines)], env=environment, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def test_a_closed_standard_output_prints_no_message(tmp_path):
    with started(tmp_path, "chatty") as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_ctrl_c_ends_a_verb_without_a_traceback(tmp_path):
    with started(tmp_path, "endless") as process:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=10) == (b"", b"")
    assert process.returncode == 130


def test_python_dash_m_is_the_same_command():
    answer = subprocess.run([sys.executable, "-m", "lingon", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("lingon ")


def test_importing_lingon_imports_nothing_heavy_and_everything_it_names_is_there() -> None:
    code = "import sys, lingon; assert not {'grpc', 'google.protobuf', 'typer'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    for name in lingon.__all__:
        assert getattr(lingon, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lingon.nothing


First = Annotated[str, typer.Argument(help="The first one.")]
Last = Annotated[bool, typer.Option("--last", help="Whether it is the last one.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Size(OptionGroup):
    width: Annotated[int, typer.Option(min=1, help="Its width.")] = 2
    height: Annotated[int | None, typer.Option("--tall", help="Its height.", show_default="the width")] = None


@pytest.fixture
def received() -> list[Any]:
    return []


@pytest.fixture
def verb(received: list[Any]) -> Callable[..., None]:
    @with_option_groups
    def verb(*, first: First, size: Size, last: Last = False) -> None:
        received.append((first, size, last))

    return verb


@pytest.fixture
def app(verb: Callable[..., None]) -> typer.Typer:
    app = typer.Typer()
    app.command()(verb)
    return app


def test_the_values_of_a_group_reach_the_verb_as_one_value(app: typer.Typer, received: list[Any]) -> None:
    for arguments in (["a"], ["a", "--tall", "5", "--last"], ["a", "--width", "3"]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert received == [("a", Size(), False), ("a", Size(height=5), True), ("a", Size(width=3), False)]


def test_a_bound_of_an_option_in_a_group_holds(app: typer.Typer, received: list[Any]) -> None:
    assert CliRunner().invoke(app, ["a", "--width", "0"]).exit_code == 2
    assert received == []


def test_the_options_of_a_group_are_in_the_place_of_its_parameter(app: typer.Typer) -> None:
    names = [parameter.name for parameter in typer.main.get_command(app).params]
    assert names[:4] == ["first", "width", "height", "last"]


def test_a_verb_that_is_called_has_the_defaults_of_the_options_that_are_left_out(
    verb: Callable[..., None], received: list[Any]
) -> None:
    verb(first="a", width=7)
    assert received == [("a", Size(width=7), False)]
