"""The results of witnesses, which the documentation shows: a test writes them if LINGON_WITNESS_TABLE is set."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from tests.support.repository import ROOT

TABLES = ROOT / "docs" / "generators" / "witnesses"
VARIABLE = "LINGON_WITNESS_TABLE"


def write_rows(table: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows to a table of TABLES; those of the same form and search are replaced. Does nothing by default."""
    if os.environ.get(VARIABLE) != "1":
        return
    path = TABLES / f"{table}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    found = {(row["family"], row["form"], row["search"]): row for row in (*known, *rows)}
    TABLES.mkdir(exist_ok=True)
    path.write_text(json.dumps(list(found.values()), indent=1) + "\n", encoding="utf-8")
