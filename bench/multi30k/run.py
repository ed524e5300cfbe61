"""Averages the last checkpoints of a run and translates the test sets; nothing is made twice."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from lingon.bench.multi30k.plan import LENGTH_PENALTY, System
from lingon.files import make_folders, write_text
from lingon.lines import read_lines
from lingon.training import checkpoint as checkpoints
from lingon.training.averaging import average_checkpoints
from lingon.training.evaluation import translate_lines


def averaged(folders: Sequence[Path], work: Path) -> Path:
    """The checkpoint with the mean of the weights of folders, below work; computed once."""
    if len(folders) == 1:
        return folders[0]
    path = work / f"average-{_digest(folders)}"
    if not path.is_dir():
        mean = average_checkpoints(list(folders))
        checkpoints.save_checkpoint(path, mean.config, mean.tokenizer, mean.model, mean.progress)
    return path


def translated(checkpoint: Path, sources: Sequence[str], system: System, work: Path, device: str) -> list[str]:
    """The translation of each source; kept in a file below work, so that the same one is not made twice."""
    name = f"{_digest([checkpoint], *sources)}-beam-{system.beam_size}.txt"
    path = work / "translations" / name
    if not path.is_file():
        make_folders(path.parent)
        found = translate_lines(
            checkpoint, list(sources), beam_size=system.beam_size, length_penalty=LENGTH_PENALTY, device=device
        )
        write_text(path, "".join(f"{line}\n" for line in found.lines))
    return list(read_lines(path))


def _digest(folders: Sequence[Path], *lines: str) -> str:
    """The first digits of the SHA-256 of the weights of checkpoints and of lines."""
    digest = hashlib.sha256()
    for folder in folders:
        digest.update(hashlib.sha256((folder / checkpoints.MODEL).read_bytes()).digest())
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()[:16]
