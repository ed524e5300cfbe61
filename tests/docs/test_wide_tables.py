"""Wide tables of the site: what may break over lines, so that a table is no wider than its page."""

from __future__ import annotations

import re

from docs.generators.bundle import layout
from docs.generators.settings import settings
from tests.support.repository import ROOT

BUNDLE = max((ROOT / "models" / "en-de").iterdir(), key=lambda folder: int(folder.name))

MOST_LETTERS = 30  # of a piece that cannot break, in tables of four to six columns


def longest(table: str) -> str:
    """The longest piece of a table that has no place for a line break."""
    return max(re.split(r"<wbr>|[\s|/-]+", table), key=len)


def test_the_table_of_settings_fits_its_page():
    assert len(longest(settings())) <= MOST_LETTERS + len("``")


def test_every_file_of_a_bundle_has_a_row_with_its_meaning():
    rows = dict(re.findall(r"(?m)^\| `(.*?)` \| (.*) \|$", layout()))
    files = {path.relative_to(BUNDLE) for path in BUNDLE.rglob("*") if path.is_file()}
    graphs = {f"<precision>/{path.name}" for path in files if path.suffix == ".onnx"}
    assert graphs | {"manifest.json", "shortlist.npz", "profiles.bin", "tokenizer.model", "MODEL_CARD.md"} <= set(rows)
    assert all(rows.values())
