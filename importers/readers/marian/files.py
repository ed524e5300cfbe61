"""Which files of a folder are those of a model of Marian, and what decoder.yml and metadata.json say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lingon.bundle import Language
from lingon.bundle.schema import unmet_rule
from lingon.errors import SourceModelError
from lingon.importers.files.fields import Fields
from lingon.importers.readers.marian.container import unpacked
from lingon.importers.readers.marian.options import MOST_OPTIONS, read_yaml
from lingon.importers.readers.marian.vocabulary import MarianVocabulary, read_vocabulary

METADATA = "metadata.json"  # of the students of Firefox
SHARED_NAMES = ("vocab.*.spm", "vocab.*.spm.gz", "vocab.spm", "*.vocab.yml", "vocab.yml")
SIDE_NAMES = {
    "source": ("srcvocab.*.spm", "srcvocab.*.spm.gz", "*.src.vocab.yml", "*.src.vocab"),
    "target": ("trgvocab.*.spm", "trgvocab.*.spm.gz", "*.trg.vocab.yml", "*.trg.vocab"),
}
MOST_YAML_FILES = 20  # that are looked into for the options of the decoder
LEXICONS = ("lex.*s2t.bin", "lex.*s2t.bin.gz", "lex.*s2t", "lex.*s2t.gz")
_PAIR = re.compile(r"model\.(?:([a-z]{2})([a-z]{2})|([a-z]{2,3})-([a-z]{2,3}))\..*")


def models_of(folder: Path) -> list[Path]:
    """Return the files of a folder that may hold a model of Marian."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith((".npz", ".bin", ".bin.gz"))
        and not path.name.startswith(("lex.", "pytorch_model", "model.bin"))
        and "optimizer" not in path.name
        and path.is_file()
    )


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """What decoder.yml says of the search; path: None if there is no such file."""

    path: Path | None
    values: dict[str, Any]

    def names(self, option: str) -> list[str]:
        """Return the names of the files of an option, without their folders."""
        value = self.values.get(option, [])
        listed = value if isinstance(value, list) else [value]
        return [Path(str(each)).name for each in listed]

    def number(self, option: str, default: float) -> float:
        """Return a number; the default if the file does not say one."""
        value = self.values.get(option, default)
        return float(value) if isinstance(value, int | float) else default


def read_decoder_options(folder: Path) -> DecoderOptions:
    """Return the options of the file that names models and vocabularies."""
    found = (path for path in sorted(folder.glob("*.yml")) if "vocab" not in path.name)
    for path in islice(found, MOST_YAML_FILES):
        if path.stat().st_size < MOST_OPTIONS:
            values = read_yaml(path, unpacked(path).tobytes().decode("utf-8", "replace"))
            if "models" in values and "vocabs" in values:
                return DecoderOptions(path, values)
    return DecoderOptions(None, {})


def model_file(folder: Path, decoder: DecoderOptions) -> Path:
    """Return the file of the model. Raises SourceModelError unless there is one."""
    named = [folder / name for name in decoder.names("models") if (folder / name).is_file()]
    found = named or models_of(folder)
    if len(found) != 1:
        listed = ", ".join(path.name for path in found[:5])
        raise SourceModelError(f"{folder}: must have one model of Marian, has {len(found)}: {listed}")
    return found[0]


def read_vocabularies(folder: Path, decoder: DecoderOptions) -> tuple[MarianVocabulary, MarianVocabulary]:
    """Return the source and the target vocabulary, one object if it is one file."""
    named = [folder / name for name in decoder.names("vocabs") if (folder / name).is_file()]
    if len(named) not in (1, 2):
        shared = first(folder, SHARED_NAMES)
        found = [shared] if shared else [first(folder, names) for names in SIDE_NAMES.values()]
        named = [path for path in found if path is not None]
        if len(named) != len(found):
            raise SourceModelError(f"{folder}: has no vocabulary: none of {', '.join(SHARED_NAMES)}")
    source = read_vocabulary(named[0])
    return source, source if named[0] == named[-1] else read_vocabulary(named[-1])


def first(folder: Path, patterns: Sequence[str]) -> Path | None:
    """Return the first file that has one of the names."""
    return next((path for pattern in patterns for path in sorted(folder.glob(pattern))), None)


def languages_of(folder: Path, path: Path) -> tuple[str, str]:
    """Return source and target as metadata.json or the name of the model says, else ""."""
    more = Fields.read_if_there(folder / METADATA)
    named = more.text("sourceLanguage", ""), more.text("targetLanguage", "")
    if not all(named) and (found := _PAIR.fullmatch(path.name)):
        named = (found[3] or found[1], found[4] or found[2])
    return tuple("" if unmet_rule(Language, name) else name for name in named)  # type: ignore[return-value]
