"""Files with the names of a corpus, and settings that name them; for a trial they hold sample sentences."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

from lingon.bench.workloads.sample_sentences import sample_file
from lingon.files import make_folders, write_bytes
from lingon.lines import read_lines


def corpus_files(folder: Path, prefix: str, part: str) -> tuple[Path, Path]:
    """Source and target file of a part of a corpus.

    prefix: corpus and pair, such as multi30k.en-de; part: such as train
    """
    source, target = prefix.rpartition(".")[2].split("-")
    return folder / f"{prefix}.{part}.{source}.gz", folder / f"{prefix}.{part}.{target}.gz"


def corpus_overrides(folder: Path, prefix: str) -> list[str]:
    """The settings of a run that trains on part train of a corpus and validates on part valid."""
    blocks = (("data.train.0", "train"), ("data.valid", "valid"))
    return [
        f'{block}.{side}="{path.resolve()}"'
        for block, part in blocks
        for side, path in zip(("source", "target"), corpus_files(folder, prefix, part), strict=True)
    ]


def write_corpus(folder: Path, prefix: str, part: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Write a part of a corpus; the same pairs make the same bytes."""
    make_folders(folder)
    for path, lines in zip(corpus_files(folder, prefix, part), zip(*pairs, strict=True), strict=True):
        write_bytes(path, gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


def write_sample_corpus(folder: Path, prefix: str, parts: Mapping[str, int]) -> None:
    """Write sample sentences in the place of a corpus. parts: names and numbers of sentences; no sentence twice."""
    source, target = prefix.rpartition(".")[2].split("-")
    pairs = zip(read_lines(sample_file(source)), read_lines(sample_file(target)), strict=True)
    for part, count in parts.items():
        write_corpus(folder, prefix, part, itertools.islice(pairs, count))
