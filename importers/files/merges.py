"""Files of byte-pair merges, and vocabularies of Moses pieces with the ids of Lingon."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from lingon.errors import SourceModelError
from lingon.importers.files.fields import MOST_JSON_BYTES
from lingon.importers.files.pieces import Numbering
from lingon.moses import WORD_END, serialised
from lingon.text import Tokenizer

HEADER = "#version:"  # the first line of files of subword-nmt
VERSION = "0.2"  # in 0.1 the end of a word is a symbol of its own
CONTINUED = "@@"  # after a piece that does not end a word, as subword-nmt writes text
MOST_MERGES = 2**20


def read_merges(path: Path) -> list[str]:
    """Return the merges of a file, the first one first: two symbols with a space between them.

    fastBPE writes a count after them. Raises SourceModelError.
    """
    try:
        if (size := path.stat().st_size) > MOST_JSON_BYTES:
            raise SourceModelError(f"{path}: must have at most {MOST_JSON_BYTES:,} bytes, has {size:,}")
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SourceModelError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SourceModelError(f"{path}: must be UTF-8") from None
    first = 0
    if lines[0].startswith(HEADER):
        first = 1
        if (version := lines[0].removeprefix(HEADER).strip()) != VERSION:
            raise SourceModelError(f"{path}: the version of the merges must be {VERSION}, is {version[:20]!r}")
    found = []
    for number, line in enumerate(lines[first:], start=first + 1):
        parts = line.strip("\r ").split(" ", 3)  # more would take memory of many times the line
        if parts == [""]:
            continue
        if len(parts) not in (2, 3) or not all(parts) or (len(parts) == 3 and not parts[2].isdigit()):
            raise SourceModelError(f"{path}: line {number} must be two symbols, is {line[:60]!r}")
        found.append(f"{parts[0]} {parts[1]}")
    if not 1 <= len(found) <= MOST_MERGES:
        raise SourceModelError(f"{path}: must have 1 to {MOST_MERGES:,} merges, has {len(found):,}")
    return found


def with_word_ends(pieces: Sequence[str], special: Collection[str]) -> list[str]:
    """Return pieces that say which ones end a word, made from pieces that say which ones do not.

    special: pieces that are not of words
    """
    return [
        piece
        if piece in special
        else piece.removesuffix(CONTINUED)
        if piece.endswith(CONTINUED) and piece != CONTINUED
        else piece + WORD_END
        for piece in pieces
    ]


def moses_tokenizer(
    languages: tuple[str, str],
    numberings: tuple[Numbering, Numbering],
    merges: tuple[Sequence[str], Sequence[str]],
    reserved: Collection[str],
) -> Tokenizer:
    """Return the tokenizer of a source and a target vocabulary.

    languages: whose rules Moses applies, such as en; those of a region or script are the same
    reserved: pieces that no text may become
    """
    sides = [
        serialised(
            language.partition("-")[0].lower(),
            numbering.pieces,
            [number for number, piece in enumerate(numbering.pieces) if piece in reserved],
            each,
        )
        for language, numbering, each in zip(languages, numberings, merges, strict=True)
    ]
    return Tokenizer(sides[0], sides[1])
