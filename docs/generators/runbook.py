"""The runbook in deploy/ as a part of a page."""

from __future__ import annotations

import re
from pathlib import Path

RUNBOOK = Path(__file__).parents[2] / "deploy" / "RUNBOOK.md"


def runbook() -> str:
    """Its text without the title; a link to a file of deploy/ becomes the path of that file."""
    _, _, text = RUNBOOK.read_text(encoding="utf-8").partition("\n")
    return re.sub(r"\[([^\]]+)\]\(([\w./-]+)\)", lambda found: f"`deploy/{found[2]}`", text)
