"""Where `lingon live` reads: a file, or standard input as its lines arrive."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from lingon.cli.live_words import Step, Written, steps_of
from lingon.errors import LingonError, SettingsError

FORMS = {
    ".vtt": Written.VTT,
    ".srt": Written.VTT,
    ".json": Written.JSON,
    ".jsonl": Written.JSON,
    ".ndjson": Written.JSON,
}
"""How a file is written, by the end of its name. The first lines of others tell it."""


@dataclass(frozen=True, slots=True)
class Given:
    """What is read. file: None for standard input; written: None if the first lines tell it."""

    file: BufferedReader | None
    written: Written | None

    @classmethod
    def of(cls, path: Path | None, written: Written | None) -> Given:
        """Open a file. Raises SettingsError if it cannot be read."""
        if path is None:
            return cls(None, written)
        try:
            return cls(path.open("rb"), written or FORMS.get(path.suffix.lower()))
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}") from None

    def steps(self, language: str) -> Iterator[Step]:
        """Yield the steps of a speaker; language: see `steps_of`.

        Raises LingonError, which names the file and the line. A file that has no words is an error too, because it is
        hardly the one that was meant.
        """
        if self.file is None:
            yield from steps_of(_lines_of_input(), self.written, language)
            return
        is_empty = True
        try:
            with self.file:
                for step in steps_of(_decoded(self.file), self.written, language):
                    is_empty = False
                    yield step
        except LingonError as error:
            raise LingonError(f"{self.file.name}: {error}") from None
        if is_empty:
            what = "captions" if self.written is Written.VTT else "words"
            raise LingonError(f"{self.file.name}: the file has no {what}")


def _lines_of_input() -> Iterator[str]:
    """Yield the lines of standard input as they arrive. Raises LingonError for one that is not UTF-8."""
    if sys.stdin is None:
        raise LingonError("standard input is closed; give it captions or words, or name a file")
    with os.fdopen(os.dup(sys.stdin.fileno()), "rb") as stream:  # sys.stdin would be locked at the exit
        yield from _decoded(stream, " of standard input")


def _decoded(stream: BufferedReader, of: str = "") -> Iterator[str]:
    """Yield the lines of a stream; of: what they are of, for the error."""
    for number, line in enumerate(stream, 1):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise LingonError(f"line {number}{of} is not UTF-8") from None
