"""Options that belong together: a verb declares one parameter, and its command line has the options of a group."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class GroupedOption(NamedTuple):
    """An option: its type, as typer reads it, and its default."""

    kind: Any
    default: Any


class OptionGroup:
    """The base of a dataclass whose fields are options: the name, the type as typer reads it, and the default."""

    __slots__ = ()


def with_option_group(
    verb: Callable[..., None], parameter: str, options: Mapping[str, GroupedOption], make: Callable[..., Any]
) -> Callable[..., None]:
    """The verb with options in the place of a parameter.

    options: by the name of their parameter
    make: receives the values of the options that are given by name, and returns the value of the parameter
    """
    signature = inspect.signature(verb, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        group = options if each.name == parameter else {each.name: GroupedOption(each.annotation, each.default)}
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=option.kind, default=option.default)
            for name, option in group.items()
        ]

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        value = make(**{name: given.pop(name) for name in options if name in given})
        verb(**{parameter: value}, **given)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}  # typer reads both
    return run


def with_option_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the options of a group in the place of each parameter whose type is an OptionGroup."""
    for name, parameter in inspect.signature(verb, eval_str=True).parameters.items():
        kind = parameter.annotation
        if inspect.isclass(kind) and issubclass(kind, OptionGroup):
            verb = with_option_group(verb, name, _options_of(kind), kind)
    return verb


def _options_of(group: Any) -> dict[str, GroupedOption]:
    """The options of a group by name."""
    kinds = typing.get_type_hints(group, include_extras=True)
    return {each.name: GroupedOption(kinds[each.name], each.default) for each in dataclasses.fields(group)}
