"""Translations that Marian's engine made of the models of `marian_forms`, kept in tests/data/marian_engine.json.

The models are made from seeds, so that the translations hold without the engine. After a change of a form or of a line,
`python -m tests.support.marian_kept` makes them again; `make e2e` installs the engine before.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lingon.importers.witness.marian import MarianEngine
from tests.support.foreign_clients import NODE_CLIENT
from tests.support.marian_forms import FORMS, LINES, written
from tests.support.repository import ROOT

KEPT = ROOT / "tests" / "data" / "marian_engine.json"
KEPT_LINES = LINES[3::8]
BEAMS = 6  # lines whose translations by beam search are kept


@dataclass(frozen=True, slots=True)
class Kept:
    """The translations of KEPT_LINES by form: of greedy search, and the first BEAMS of beam search with four beams."""

    greedy: dict[str, list[str]]
    beam: dict[str, list[str]]


def read_kept() -> Kept:
    """Read the file."""
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    assert found["lines"] == KEPT_LINES, "other lines than those that were translated: see the top of this file"
    return Kept(found["greedy"], found["beam 4"])


def main() -> None:
    """Write the file."""
    with MarianEngine(NODE_CLIENT) as engine, tempfile.TemporaryDirectory() as room:
        found: dict[str, dict[str, list[str]]] = {"greedy": {}, "beam 4": {}}
        for number, (name, form) in enumerate(FORMS.items()):
            _, files = written(form, Path(room) / str(number))
            for search, beam_size, texts in (("greedy", 1, KEPT_LINES), ("beam 4", 4, KEPT_LINES[:BEAMS])):
                engine.load(files.model, files.vocabularies, beam_size=beam_size, length_factor=2.0)
                found[search][name] = engine.translate(texts)
        written_by = f"bergamot-translator {engine.version} (npm)"
    kept = {"engine": written_by, "made by": "python -m tests.support.marian_kept", "lines": KEPT_LINES, **found}
    KEPT.write_text(f"{json.dumps(kept, ensure_ascii=False, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
