"""Files of terms, read whole: .tsv, .csv, .tbx and .tmx."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from pathlib import Path

from lingon.errors import CorpusError, SettingsError
from lingon.terms.concepts import read_concepts
from lingon.terms.tables import read_table
from lingon.terms.term import Term, TermError, check_numbered

MOST_BYTES = 256 << 20  # of a file: 100,000 terms with all that each may have are less
MOST_ENTRIES = 1_000_000  # of a file

SUFFIXES = (".tsv", ".csv", ".tbx", ".tmx")
"""The ends of the names of files of terms."""


def read_terms(path: Path | str, source: str = "", target: str = "", *, content: bytes | None = None) -> Iterator[Term]:
    """Return the terms of a file, checked by `check_terms`; nothing is returned of a file with an error.

    source, target: BCP-47, for files that say languages; empty if they are not known
    content: that of the file, if it is not read from the path, which then is its name alone
    Raises TermError with the name of the file for a bad entry, and CorpusError for a file that cannot be read.
    """
    name, suffix = str(path), _suffix(path)
    content = _read(Path(path)) if content is None else content
    if len(content) > MOST_BYTES:
        raise _too_large(name, len(content))
    if suffix in (".tsv", ".csv"):
        entries = read_table(name, _text(name, content), source, target, tabs=suffix == ".tsv")
    else:
        entries = read_concepts(name, content, source, target)
    try:
        return iter(check_numbered(_bounded(name, entries)))
    except TermError as error:
        raise TermError(error.number, error.problem, error.other, name=name) from None


def _suffix(path: Path | str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise SettingsError(f"{path}: a file of terms must end in {', '.join(SUFFIXES)}, got {suffix or 'no ending'}")
    return suffix


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise _too_large(str(path), path.stat().st_size)
            return content
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}") from None


def _too_large(name: str, size: int) -> CorpusError:
    return CorpusError(f"{name}: has {size:,} bytes; a file of terms has at most {MOST_BYTES:,}")


def _text(name: str, content: bytes) -> str:
    """Return the text of a table: UTF-8, or UTF-16 with its mark, in which Excel writes tables with tabs."""
    wide = content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if wide else "utf-8").removeprefix(BOM_UTF8.decode())
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if wide else "UTF-8"
        raise CorpusError(f"{name}: not {encoding} ({error.reason} at byte {error.start:,})") from None


def _bounded(name: str, entries: Iterator[tuple[int, Term]]) -> Iterator[tuple[int, Term]]:
    for number, term in entries:
        if number > MOST_ENTRIES:
            raise CorpusError(f"{name}: has more than {MOST_ENTRIES:,} entries")
        yield number, term
