"""Options that several verbs share: a verb declares one parameter, and its command line has the options of a group."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class GroupedOption(NamedTuple):
    """An option: its type, as typer reads it, and its default."""

    kind: Any
    default: Any


def with_option_group(
    verb: Callable[..., None], parameter: str, options: Mapping[str, GroupedOption], make: Callable[..., Any]
) -> Callable[..., None]:
    """The verb with options instead of a parameter.

    options: by the name of their parameter; they come after those of the verb
    make: receives the values of the options by name, and returns the value of the parameter
    """
    signature = inspect.signature(verb, eval_str=True)
    kept = [each for each in signature.parameters.values() if each.name != parameter]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=option.kind, default=option.default)
        for name, option in options.items()
    ]

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        value = make(**{name: given.pop(name) for name in options})
        verb(**{parameter: value}, **given)

    parameters = [*kept, *added]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}  # typer reads both
    return run
