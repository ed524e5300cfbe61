"""What a reader finds in a checkpoint of another toolkit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from lingon.export.graphs.quantisation import InputRange
from lingon.importers.files.pieces import Numbering
from lingon.serving.runtime.shortlist import Shortlist
from lingon.terms.annotation import AnnotationForm
from lingon.text import Tokenizer
from lingon.training.config import LanguageSettings
from lingon.training.model_settings import TransformerSettings


@dataclass(frozen=True, slots=True)
class ReorderedRows:
    """Rows of a table in a new order. They are written where they belong: a copy would take the memory of the table."""

    table: Tensor
    order: Sequence[int]

    def write(self, target: Tensor) -> None:
        """Write the rows to a tensor of their shape, without gradients."""
        assert target.shape == (len(self.order), *self.table.shape[1:])
        torch.index_select(self.table, 0, torch.tensor(self.order), out=target)


ForeignWeight = Tensor | ReorderedRows

ALL = "all"  # instead of a language that a user names: all others
Sides = tuple[Sequence[str], Sequence[str]]
"""The languages of the source, and those of the target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a checkpoint says of itself besides its tensors.

    form: of the checkpoint, as a reader of the card understands it
    languages: source and target, or "" where the files do not say
    beam_size, length_penalty: of its search
    longest: source tokens that it reads, the end token counted
    alignment: the decoder layer and its heads whose attention gives alignments, or None if the checkpoint does not say
    files: what was read
    toolkit: what the checkpoint was made for
    origin: where it was published, such as a repository with its revision; "" if nothing says it
    scores: published ones by test set and metric
    """

    form: str
    languages: tuple[str, str] = ("", "")
    beam_size: int
    length_penalty: float
    longest: int
    alignment: tuple[int, tuple[int, ...]] | None = None
    files: tuple[Path, ...]
    licence: str = ""
    toolkit: str = "Transformers"
    origin: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model of another toolkit, in the names and the numbering of Lingon.

    weights: by the names of lingon.training.models.transformer, tied ones once. Read when they are asked for
    source, target: the numberings of the two vocabularies
    notes: what a user should know about the files
    languages: of a model of several languages: all that it knows
    shortlist: its own likely target pieces of each source piece, if its files have them
    ranges: of the inputs of its 8-bit products, if it was trained for them
    terms: the form of annotated sources, if it was trained with such sources
    """

    settings: TransformerSettings
    weights: Iterator[tuple[str, ForeignWeight]]
    tokenizer: Tokenizer
    source: Numbering
    target: Numbering
    facts: Facts
    notes: list[str] = field(default_factory=list)
    languages: LanguageSettings | None = None
    shortlist: Shortlist | None = None
    ranges: Mapping[str, InputRange] | None = None
    terms: AnnotationForm | None = None


def digests(files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of files by name."""
    found = {}
    for path in files:
        with path.open("rb") as opened:
            found[path.name] = hashlib.file_digest(opened, "sha256").hexdigest()
    return found
