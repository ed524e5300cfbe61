"""A group of options in the place of a parameter: on the command line, in the help, and when a verb is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from lingon.cli.options.groups import OptionGroup, with_option_groups

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
