"""The 500 sentence pairs of the repository's tests: the text of a benchmark that runs without --data."""

from __future__ import annotations

from pathlib import Path

from lingon.errors import SettingsError

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "data"


def sample_file(language: str, folder: Path = FOLDER) -> Path:
    """The file with the sample sentences of a language, one a line; line N is a translation of line N of the others.

    Raises SettingsError if the file does not exist: an installed package has no sample sentences.
    """
    path = folder / f"tatoeba.{language}"
    if not path.is_file():
        raise SettingsError(
            f"{path}: no sample sentences here, they are in a clone of the repository; pass --data FOLDER"
        )
    return path
