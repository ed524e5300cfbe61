"""The options of the Python client, from the comments beside their declarations."""

from __future__ import annotations

import inspect
import re

from docs.generators.markdown import code, plain, table
from lingon import ScoreOptions, TranslateOptions


def translate_options() -> str:
    """The table of the options of `translate`."""
    return _table(TranslateOptions)


def score_options() -> str:
    """The table of the options of `score`."""
    return _table(ScoreOptions)


def _table(kind: type) -> str:
    fields = re.findall(r"(?m)^    (\w+): (.*?)(?:  # (.*))?$", inspect.getsource(kind))
    rows = [(code(name), code(annotation.removesuffix(" | None")), plain(text)) for name, annotation, text in fields]
    return table(("option", "type", "meaning"), rows)
