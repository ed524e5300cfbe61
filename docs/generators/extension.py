"""The Sphinx extension of this site: puts generated parts into pages, and makes our docstrings reStructuredText.

A page names a generated part in a comment of a line of its own: `<!-- generated: settings -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from docs.generators import (
    attention,
    bundle,
    chaos,
    cli,
    diagram,
    errors,
    kept_strings,
    machines,
    metrics,
    models,
    options,
    proto,
    runbook,
    settings,
    witness_table,
)

PARTS: dict[str, Callable[[], str]] = {
    "attention-lengths": attention.lengths,
    "attention-systems": attention.systems,
    "architecture": diagram.diagram,
    "bundle-declarations": bundle.declarations,
    "bundle-layout": bundle.layout,
    "bundle-tensors": bundle.tensors,
    "capacity": machines.capacity,
    "chaos": chaos.chaos,
    "cli": cli.reference,
    "errors": errors.errors,
    "exit-codes": errors.exit_codes,
    "kept-strings": kept_strings.forms,
    "measured": machines.measured,
    "metrics": metrics.metrics,
    "model-settings": models.model_settings,
    "proto-admin": lambda: proto.reference("lingon/admin/v1/admin.proto"),
    "proto-translation": lambda: proto.reference("lingon/translation/v1/translation.proto"),
    "restarts": machines.restarts,
    "runbook": runbook.runbook,
    "score-options": options.score_options,
    "settings": settings.settings,
    "slow-server": machines.slow_server,
    "translate-options": options.translate_options,
    "witnesses": witness_table.witnesses,
}
MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def filled(page: str) -> str:
    """The page with its generated parts in place; raises KeyError for a part that does not exist."""
    return MARK.sub(lambda found: PARTS[found[1]](), page)


def definitions(lines: list[str]) -> list[str]:
    """A docstring whose lines `name: meaning` are a list of definitions, as Sphinx reads it.

    An indented paragraph is code.
    """
    text: list[str] = []
    code = False
    for line in lines:
        found = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if line.startswith("    ") and text[-1:] == [""] and not code:
            text += [".. code-block:: python", ""]
            code = True
        code = code and line[:1] in ("", " ")
        if code:
            text.append(line)
        elif found:
            names = ", ".join(f"``{name}``" for name in found[1].split(", "))
            text += ["", f"- {names}: {found[2]}"]
        elif line.startswith("    ") and any(each.startswith("- ") for each in text):
            text.append(f"  {line.strip()}")
        else:
            text.append(line)
    return [re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line) for line in text]


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("source-read", _fill)
    app.connect("autodoc-process-docstring", _define)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _fill(app: Any, page: str, content: list[str]) -> None:
    content[0] = filled(content[0])


def _define(app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = definitions(lines)
