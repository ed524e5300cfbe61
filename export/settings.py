"""The settings of an export, and its texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lingon.bundle.manifest import BeamSize, LengthPenalty
from lingon.bundle.schema import unmet_rule
from lingon.errors import SettingsError
from lingon.export.differences import EXACT
from lingon.export.graphs.precisions import DEFAULT_PRECISIONS, PRECISION_KINDS, STAND_INS
from lingon.export.graphs.quantisation import InputRange, SentenceIds
from lingon.export.shortlist import ShortlistSettings
from lingon.serving.runtime.device import CUDA, NATIVES, kernels_missing
from lingon.serving.runtime.shortlist import Shortlist
from lingon.training.config import LanguagePair
from lingon.training.corpus import Pair
from lingon.training.search import LENGTH_EXTRA, LENGTH_FACTOR, Hypothesis, PairIds

MAX_BEAM_SIZE = 8  # of a request, unless it is said otherwise


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportSettings:
    """The precisions and files to export, the sizes of the gates, and the defaults and limits of the bundle."""

    precisions: tuple[str, ...] = DEFAULT_PRECISIONS  # fp32 is always added, to compare the others with
    optional: tuple[str, ...] = ()  # precisions, and "shortlist", that the bundle does without if they fail their gate
    shortlist: ShortlistSettings | None = field(default_factory=ShortlistSettings)
    shortlist_by_default: bool = False  # whether requests without the option use it
    beam_size: int = 4
    length_penalty: float = 1.0
    max_beam_size: int | None = None  # of a request; None is MAX_BEAM_SIZE, or the default one if that is larger
    output_factor: float = LENGTH_FACTOR  # the bounds with which `lingon evaluate` decodes a checkpoint
    output_extra: int = LENGTH_EXTRA
    alignment_layer: int | None = None  # None is the guided one, else see lingon.export.manifest
    alignment_heads: tuple[int, ...] | None = None  # of that layer; None is the guided ones, else all
    parity_sentences: int = 500  # first held-out sentences, for the token gate
    gate_sentences: int = 2500  # first held-out sentences, for the quality gate
    calibration_sentences: int = 500  # sentences of the training text, for int8 ranges
    gate_on: str = (
        "auto"  # auto, cpu or cuda: the provider of each precision if it is here, the CPU, or CUDA without fail
    )
    card: str = ""  # the model card's own text
    attachments: tuple[Path, ...] = ()  # files to publish with the card, such as its pictures

    def __post_init__(self) -> None:
        unknown = [name for name in self.precisions if name not in PRECISION_KINDS]
        if unknown:
            raise SettingsError(
                f"--precision must be some of {', '.join(PRECISION_KINDS)}, got {','.join(self.precisions)}"
            )
        _check_gate_on(self.gate_on, self.precisions)
        check_rule(LengthPenalty, self.length_penalty, "--length-penalty")
        check_rule(BeamSize, self.beam_size, "--beam-size")
        check_rule(BeamSize, self.largest_beam, "--max-beam-size")
        if self.beam_size > self.largest_beam:
            raise SettingsError(
                f"--beam-size must be 1 to {self.largest_beam}, which is --max-beam-size, got {self.beam_size}"
            )
        if self.shortlist_by_default and self.shortlist is None:
            raise SettingsError("--shortlist-by-default needs --shortlist")

    @property
    def largest_beam(self) -> int:
        """The largest beam size of a request."""
        return self.max_beam_size or max(MAX_BEAM_SIZE, self.beam_size)

    @property
    def build_order(self) -> list[str]:
        """The precisions to build, fp32 first, with those that take the place of others where these cannot run."""
        wanted = {"fp32", *self.precisions, *(STAND_INS[name] for name in self.precisions if name in STAND_INS)}
        return [name for name in PRECISION_KINDS if name in wanted]

    @property
    def gate_sentence_counts(self) -> dict[str, int]:
        """The number of sentences for each comparison of the gates."""
        lossy = self.shortlist is not None or not set(self.build_order) <= set(EXACT)
        return {"tokens": self.parity_sentences} | ({"scores": self.gate_sentences} if lossy else {})

    @property
    def reads_training_text(self) -> bool:
        """Whether the export needs the training text."""
        return self.shortlist is not None or self.is_quantised

    @property
    def is_quantised(self) -> bool:
        """Whether a precision has 8-bit products, whose ranges are measured on text."""
        return any(PRECISION_KINDS[name].quantised for name in self.precisions)


@dataclass(frozen=True, slots=True)
class ExportTexts:
    """The texts of an export.

    held_out: text for the gates. Every source has at most as many tokens as the model reads
    training: text that the model was trained on, for int8 ranges and the shortlist
    others: sources of other pairs of languages than that of held_out, on which lossy precisions are compared with fp32
    """

    held_out: Sequence[Pair]
    training: Sequence[Pair] = ()
    others: Mapping[LanguagePair, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """What a model brings that an export otherwise learns from the training text.

    shortlist: its likely target pieces of each source piece
    ranges: of the inputs of its 8-bit products, by the names of `lingon.export.graphs.quantisation.calibrate`
    sentences: to measure these ranges on, with the tokens of their languages, instead of the training text
    greedy: translations that the reference search found with its default settings
    """

    shortlist: Shortlist | None = None
    ranges: Mapping[str, InputRange] | None = None
    sentences: Sequence[SentenceIds] = ()
    greedy: Mapping[PairIds, Hypothesis] = field(default_factory=dict)


def _check_gate_on(gate_on: str, precisions: Sequence[str]) -> None:
    if gate_on not in ("auto", "cpu", "cuda"):
        raise SettingsError(f"--gate-on must be auto, cpu or cuda, got {gate_on}")
    for_cuda = [name for name, kind in PRECISION_KINDS.items() if kind.provider == CUDA]
    if gate_on == "cuda" and not set(precisions) & set(for_cuda):
        raise SettingsError(
            f"--gate-on cuda needs a precision for CUDA ({' or '.join(for_cuda)}), got --precision "
            f"{','.join(precisions)}"
        )


def check_rule(kind: Any, value: object, what: str) -> None:
    """Raise SettingsError if a value breaks the rule of `kind`, one of the annotated types of lingon.bundle."""
    if rule := unmet_rule(kind, value):
        raise SettingsError(f"{what} must be {rule}, got {value}")


def runnable(precisions: Sequence[str], log: Callable[[str], None]) -> tuple[str, ...]:
    """Return the precisions whose gates can run here. Without native operators lines say what is left out."""
    missing = kernels_missing()
    for name in precisions:
        if missing is not None and name in NATIVES:
            log(f"{name} is left out: {missing}")
    return tuple(name for name in precisions if missing is None or name not in NATIVES)
