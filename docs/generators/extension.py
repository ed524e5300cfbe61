"""The Sphinx extension of this site: puts generated parts into pages, and makes our docstrings reStructuredText.

A page names a generated part in a comment of a line of its own: `<!-- generated: settings -->`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs.generators import live
from docs.generators.proto import reference
from docs.generators.reference import (
    catalogue,
    command_line,
    declarations,
    errors,
    exit_codes,
    fence,
    forms,
    layout,
    live_options,
    metrics,
    model_settings,
    score_options,
    settings,
    tensors,
    translate_options,
)
from docs.generators.results import lengths, reference_engines, systems
from tests.reliability.checks import read_rows, summary, table

ROOT = Path(__file__).parents[2]


def layers() -> str:
    """Return the layers of `lingon` and of `lingon.serving`, highest first, as the import rules declare them."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    parts = []
    for container in ("lingon", "lingon.serving"):
        (rule,) = (rule for rule in rules if container in rule.get("containers", ()))
        rows = [", ".join(re.split(" [|:] ", layer)) for layer in rule["layers"]]
        parts += [f"`{container}`:", fence("\n".join(rows))]
    return "\n\n".join(parts)


def runbook() -> str:
    """Return the runbook of deploy/ without its title. A link to a file of deploy/ becomes its path."""
    _, _, text = (ROOT / "deploy" / "RUNBOOK.md").read_text(encoding="utf-8").partition("\n")
    return re.sub(r"\[([^\]]+)\]\(([\w./-]+)\)", lambda found: f"`deploy/{found[2]}`", text)


def chaos() -> str:
    """Return the summary and the table of the newest results of the reliability tests."""
    rows = read_rows(max((ROOT / "bench" / "results").glob("*-reliability.json")))
    return f"{summary(rows)}\n\n{table(rows)}"


PARTS: dict[str, Callable[[], str]] = {
    "attention-lengths": lengths,
    "attention-systems": systems,
    "bundle-declarations": declarations,
    "bundle-layout": layout,
    "bundle-tensors": tensors,
    "catalogue": catalogue,
    "chaos": chaos,
    "cli": command_line,
    "errors": errors,
    "exit-codes": exit_codes,
    "kept-strings": forms,
    "layers": layers,
    "live-load": live.load,
    "live-options": live_options,
    "live-quality": live.quality,
    "live-states": live.states,
    "live-talk": live.talk,
    "metrics": metrics,
    "model-settings": model_settings,
    "proto-admin": lambda: reference("lingon/admin/v1/admin.proto"),
    "proto-stores": lambda: reference("lingon/translation/v1/stores.proto"),
    "proto-translation": lambda: reference("lingon/translation/v1/translation.proto"),
    "runbook": runbook,
    "score-options": score_options,
    "settings": settings,
    "translate-options": translate_options,
    "reference-engines": reference_engines,
}
MARK = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)


def filled(page: str) -> str:
    """Return the page with its generated parts. Raise KeyError for a part that does not exist."""
    return MARK.sub(lambda found: PARTS[found[1]](), page)


def definitions(lines: list[str]) -> list[str]:
    """Return a docstring whose lines `name: meaning` are a list of definitions, as Sphinx reads it.

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
