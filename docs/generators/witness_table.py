"""Which engine that is not ours confirmed each form of model that is imported, as the tests recorded it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

from docs.generators.markdown import plain, table

CONFIRMED = Path(__file__).parent / "witnesses"


class Row(TypedDict):
    """How many translations an engine and an imported model of one form have in common.

    witness: name and version of the engine; empty where none computes the form, then form says why
    """

    family: str
    form: str
    witness: str
    search: str
    equal: int
    of: int


def witnesses() -> str:
    """A table of the forms, those with the same results in one line, and what no engine confirms at its end."""
    rows: list[Row] = [row for path in sorted(CONFIRMED.glob("*.json")) for row in json.loads(path.read_text("utf-8"))]
    results: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        found = results.setdefault((row["family"], row["form"], row["witness"]), [])
        if row["witness"]:
            found.append(f"{row['search']}: {row['equal']} of {row['of']}")
    forms: dict[tuple[str, str, str], list[str]] = {}
    for (family, form, witness), found in results.items():
        forms.setdefault((family, witness, "; ".join(found)), []).append(form)
    lines = [
        [plain(family), plain("; ".join(names)), plain(witness) or "not confirmed", plain(found)]
        for (family, witness, found), names in sorted(forms.items(), key=lambda each: (not each[0][1], each[0][0]))
    ]
    return table(["files of", "forms", "engine", "same translations"], lines)
