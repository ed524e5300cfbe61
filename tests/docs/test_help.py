"""Help texts as a terminal shows them."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest

from docs.generators.reference import commands
from lingon.cli.main import main

COMMANDS = commands()


def help_of(name: str, monkeypatch: pytest.MonkeyPatch, columns: int = 1000) -> str:
    """What `--help` prints on a terminal of so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        command = COMMANDS[name]
        returned = command.get_help(command.context_class(command, info_name=name, max_content_width=columns))
    return f"{returned}\n{printed.getvalue()}"


def needs_default(parameter: Any) -> bool:
    """Whether an option or argument can be left out and is no mere switch, whose absence explains itself."""
    switch = getattr(parameter, "is_flag", False) and not parameter.secondary_opts
    return not (parameter.required or switch)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_option_says_what_its_absence_means(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default values in brackets are lost if the help is read as rich markup."""
    entries = re.split(r"\n(?=(?:│ |  )\S)", help_of(name, monkeypatch))
    silent = []
    for parameter in filter(needs_default, COMMANDS[name].params):
        label = re.escape(parameter.opts[0])
        (shown,) = (entry for entry in entries if re.match(rf"│?\s+{label}(,|\.\.\.|\s)", entry))
        if not re.search(r"(?:\[|; )default: [^\]]|Default: \S|\(default: \S|Unset: \S", shown):
            silent.append(parameter.opts[0])
    assert silent == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_on_a_terminal_of_80_columns_cuts_no_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = help_of(name, monkeypatch, 80)
    words = "".join(shown.split()).replace("│", "")
    assert "…" not in shown
    for parameter in COMMANDS[name].params:
        assert all(option in words for option in parameter.opts)
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("arguments", [[], ["models"], ["keys"], ["bench"]], ids=" ".join)
def test_the_help_of_verbs_together_looks_like_that_of_one(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """A switch takes no value, so that none is shown."""
    assert main([*arguments, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: lingon")
    assert not re.search(r"[│╭]|--help.*<", shown)
