"""The formats of bulk files: Parquet, JSON lines, CSV, TSV and plain text. It imports `lingon.errors` and PyArrow."""

from __future__ import annotations

from lingon.bulk.formats.format import Format
from lingon.bulk.formats.json_lines import JsonLines
from lingon.bulk.formats.packing import PACKINGS
from lingon.bulk.formats.parquet import Parquet
from lingon.bulk.formats.plain_text import PlainText
from lingon.bulk.formats.tab_separated import TabSeparated
from lingon.bulk.formats.tables import Table
from lingon.errors import SettingsError

FORMATS: dict[str, Format] = {
    ".parquet": Parquet(),
    ".jsonl": JsonLines(),
    ".csv": Table(","),
    ".tsv": TabSeparated(),
    ".txt": PlainText(),
}
"""By the suffix of a file, without that of its packing."""

QUOTED_TSV = Table("\t")
"""TSV by the rules of CSV."""


def suffix_of(name: str) -> str | None:
    """The suffix of a file that can be translated, as .jsonl or .jsonl.gz; None if its format is not known."""
    packing = next((each for each in PACKINGS if name.endswith(each)), "")
    stem = name.removesuffix(packing)
    suffix = next((each for each in FORMATS if stem.endswith(each)), None)
    if suffix is None or (packing and suffix == ".parquet"):  # Parquet packs its columns itself
        return None
    return suffix + packing


def format_of(name: str, *, quoted_tsv: bool = False) -> Format:
    """The format of a file by its name; raises SettingsError for one that is not known.

    quoted_tsv: whether TSV has quotation marks as CSV; else they are characters as any others
    """
    suffix = suffix_of(name)
    if suffix is None:
        known = ", ".join(FORMATS)
        raise SettingsError(
            f"{name}: the format is not known; a name ends in {known}, or in one of them and .gz or .zst"
        )
    kind = "." + suffix.split(".")[1]
    return QUOTED_TSV if quoted_tsv and kind == ".tsv" else FORMATS[kind]
