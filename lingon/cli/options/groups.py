"""Options that belong together: a verb declares one parameter, and its command line has the options of a group."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any


class OptionGroup:
    """The base of a dataclass whose fields are options: the name, the type as typer reads it, and the default.

    A field may be a group too, `Group` or `Group | None`: its options are among those of the outer group.
    """

    __slots__ = ()


def with_option_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with the options of a group in the place of each parameter whose type is an OptionGroup."""
    signature = inspect.signature(verb, eval_str=True)
    groups, parameters = dict[str, type[OptionGroup]](), list[Parameter]()
    for name, each in signature.parameters.items():
        if group := _group_in(each.annotation):
            groups[name] = group
            parameters += _options_of(group)
        else:
            parameters.append(each.replace(kind=Parameter.KEYWORD_ONLY))

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        made = {name: _made(group, given) for name, group in groups.items()}
        verb(**given, **made)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}  # typer reads both
    return run


def _group_in(kind: Any) -> type[OptionGroup] | None:
    """The group that a type is, or that it is beside None; None for the type of an option."""
    kinds = (kind, *typing.get_args(kind))
    return next((each for each in kinds if inspect.isclass(each) and issubclass(each, OptionGroup)), None)


def _options_of(group: Any) -> Iterator[Parameter]:
    """The options of a group and of those in it, as parameters of a verb."""
    kinds = typing.get_type_hints(group, include_extras=True)
    for each in dataclasses.fields(group):
        if inner := _group_in(kinds[each.name]):
            yield from _options_of(inner)
        else:
            yield Parameter(each.name, Parameter.KEYWORD_ONLY, annotation=kinds[each.name], default=each.default)


def _made(group: Any, given: dict[str, Any]) -> Any:
    """A group with the values of its options, which are taken out of those that are given."""
    kinds, values = typing.get_type_hints(group, include_extras=True), dict[str, Any]()
    for each in dataclasses.fields(group):
        if inner := _group_in(kinds[each.name]):
            values[each.name] = _made(inner, given)
        elif each.name in given:
            values[each.name] = given.pop(each.name)
    return group(**values)
