"""Help texts as a terminal shows them."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest

from docs.generators import cli

COMMANDS = cli.commands()


def help_of(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What `--help` prints on a terminal so wide that every option is one line."""
    monkeypatch.setenv("COLUMNS", "1000")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        command = COMMANDS[name]
        returned = command.get_help(command.context_class(command, info_name=name))
    return f"{returned}\n{printed.getvalue()}"


def needs_default(parameter: Any) -> bool:
    """Whether an option or argument can be left out and is no mere switch, whose absence explains itself."""
    switch = getattr(parameter, "is_flag", False) and not parameter.secondary_opts
    return not (parameter.required or switch)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_option_says_what_its_absence_means(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default values in brackets are lost if the help is read as rich markup."""
    lines = help_of(name, monkeypatch).splitlines()
    silent = []
    for parameter in filter(needs_default, COMMANDS[name].params):
        label = re.escape(parameter.opts[0])
        (shown,) = (line for line in lines if re.match(rf"│\s+{label}(,|\.\.\.|\s)", line))
        if not re.search(r"\[default: [^\]]|Default: \S|\(default: \S|Unset: \S", shown):
            silent.append(parameter.opts[0])
    assert silent == []
