"""Reads the log of a training run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lingon.errors import SettingsError


def read_log(run: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of one kind in the log of a run, by step; the last line of a step that was repeated after a kill."""
    path = run / "log.jsonl"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    complete = text[: text.rfind("\n") + 1]  # A kill may have left half a line at the end.
    lines = [json.loads(line) for line in complete.splitlines()]
    latest = {line["step"]: line for line in lines if line["kind"] == kind}
    return [latest[step] for step in sorted(latest)]
