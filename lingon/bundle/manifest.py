"""The bundle: what an export writes and a server reads. This file is the whole contract between the two.

    models/<name>/<version>/            versions are whole numbers; models/<name> means the highest
        manifest.json                   all that is declared below, and a SHA-256 of every other byte
        <precision>/encoder.onnx        source_ids, source_lengths -> every memory state, first recurrent states
        <precision>/decoder.onnx        one step: token_ids, positions, states -> candidates, logits, states
        <precision>/scorer.onnx         a whole translation at once: log-probabilities, attention
        <precision>/output_rows.onnx    with a shortlist: piece_ids -> what the output layer knows of these pieces
        <precision>/decoder_shortlist.onnx  a step that chooses among those pieces alone
        weights/*.bin                   the weights; fp32 and fp16 share what 16 bits hold exactly
        shortlist.npz                   which target pieces a source piece calls for; may be missing
        golden.json                     sentences and what each precision for the CPU makes of them; may be missing
        tokenizer.model (or source.model and target.model)
        MODEL_CARD.md

A bundle is data only, and a published version never changes. Nothing in its folder is a link: the folder itself may be
reached by one. Whatever is read is a plain file, no larger than such a file may be, and is used as it was hashed; every
value of the manifest has the type and the bounds that are declared with it below.

Dimensions: batch (sentences of one encoder run), sentences (of a running batch), rows (sentences * beam_size),
source_length, target_length, capacity (positions that a cache has room for), heads, head_dim, vocab, candidates,
union (pieces that some sentence of a running batch has on its shortlist).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Never

from lingon.bundle.schema import MaxLength, Pattern, Range, SchemaError, parse_dataclass
from lingon.errors import BundleError
from lingon.text import BOS, EOS, PAD, UNK

FORMAT = 2
MANIFEST, CARD = "manifest.json", "MODEL_CARD.md"
ENCODER, DECODER, SCORER = "encoder.onnx", "decoder.onnx", "scorer.onnx"
OUTPUT_ROWS, DECODER_SHORTLIST = "output_rows.onnx", "decoder_shortlist.onnx"
PASSED = "passed"  # the gate of a precision
WEIGHTS, SHORTLIST, GOLDEN = "weights", "shortlist.npz", "golden.json"

SOURCE_IDS, SOURCE_LENGTHS = "source_ids", "source_lengths"  # (batch, source_length), (batch)
TARGET_IDS = "target_ids"  # (batch, target_length), begins with BOS
TOKEN_IDS, POSITIONS = "token_ids", "positions"  # (rows), (rows): tokens already in each row's past
MEMORY_LENGTHS = "memory_lengths"  # (sentences): source tokens of each
CANDIDATE_COUNT = "candidate_count"  # (1): how many candidates a step hands out, at most the manifest's `candidates`
CANDIDATE_IDS, CANDIDATE_LOG_PROBS = "candidate_ids", "candidate_log_probs"  # (rows, candidates), likeliest first
LOGITS = "logits"  # (rows, at least vocab: what is beyond cannot be reached); bound only where rows sample
PIECE_IDS = "piece_ids"  # (union): the pieces that a running batch may say
ALLOWED = "allowed"  # (sentences, union) bool: those that each sentence may say
TOKEN_LOG_PROBS = "token_log_probs"  # (batch, target_length): of the token after each of target_ids
LABELS = "labels"  # (batch, target_length): the token after each of target_ids
ENCODER_ATTENTION = "encoder_attention"  # (batch, layers, heads, source_length, source_length)
DECODER_ATTENTION = "decoder_attention"  # (batch, layers, heads, target_length, target_length)
CROSS_ATTENTION = "cross_attention"  # (batch, layers, heads, target_length, source_length)

StateKind = Literal["memory", "cache", "recurrent"]
VARYING = {"memory": ([], ["source_length"]), "cache": (["capacity"],), "recurrent": ([],)}
"""By kind of state, the sizes of its shape that may vary."""

MAX_STATE_ELEMENTS = 2**28  # of all states of one sentence, at the longest; a large model of today has a tenth of it

_FILE = r"\w[\w.+ -]*"
Name = Annotated[str, Pattern(r"\w[\w.+-]{0,127}", "a name of letters, digits and . + - _")]
FileName = Annotated[str, Pattern(rf"(?=.{{1,128}}$){_FILE}", "the name of a file")]
FilePath = Annotated[str, Pattern(rf"(?=.{{1,255}}$){_FILE}(/{_FILE})*", "a path within the bundle")]
TextLine = Annotated[str, Pattern(r"[^\x00-\x1f\x7f]{0,500}", "one line of text")]
Language = Annotated[str, Pattern(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,8}", "a BCP-47 language tag")]
Sha256 = Annotated[str, Pattern(r"[0-9a-f]{64}", "a SHA-256 in hexadecimal")]
Size = Annotated[int, Range(1, 2**20)]
Varying = Annotated[str, Pattern("source_length|capacity", "a size, source_length or capacity")]
TokenCount = Annotated[int, Range(1, 2**15)]
BeamSize = Annotated[int, Range(1, 128)]
LengthPenalty = Annotated[float, Range(0, 10)]
Index = Annotated[int, Range(0, 1023)]


def past_name(state: str) -> str:
    """The decoder's input of a state that it changes."""
    return f"past.{state}"


def present_name(state: str) -> str:
    """The decoder's output of a state that it changes."""
    return f"present.{state}"


@dataclass(frozen=True, slots=True)
class State:
    """Something that the decoder reads at every step, and what the engine does with it.

    kind:
        memory     of a sentence: an output of the encoder and an input of the decoder of this name, shared by the
                   sentence's beams
        cache      of a row: grows by one position a step, in place; input past.NAME, output present.NAME
        recurrent  of a row: replaced at every step; first value an output of the encoder of this name
    shape: of one sentence or row; "source_length" and "capacity" stand for the sizes that vary. Its type is that of
        the graphs of a precision.
    """

    name: Name
    kind: StateKind
    shape: Annotated[tuple[Varying | Size, ...], MaxLength(8)]

    def sized(self, **sizes: int) -> tuple[int, ...]:
        """The shape with its names replaced by sizes."""
        return tuple(size if isinstance(size, int) else sizes[size] for size in self.shape)

    @property
    def varying(self) -> list[str]:
        """The sizes of the shape that vary."""
        return [size for size in self.shape if isinstance(size, str)]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a model, in tokens with the end token counted."""

    max_source_tokens: TokenCount
    max_target_tokens: TokenCount
    output_factor: Annotated[float, Range(0, 100)]
    output_extra: Annotated[int, Range(0, 2**15)]
    max_beam_size: BeamSize

    def max_output(self, source_tokens: int) -> int:
        """The most target tokens for a source of source_tokens."""
        return min(int(self.output_factor * source_tokens) + self.output_extra, self.max_target_tokens)


@dataclass(frozen=True, slots=True)
class Defaults:
    """How a translation is searched for where the request does not say."""

    beam_size: BeamSize = 1
    num_hypotheses: BeamSize = 1
    length_penalty: LengthPenalty = 1.0
    shortlist: bool = False


@dataclass(frozen=True, slots=True)
class Precision:
    """One set of graphs.

    provider: the onnxruntime provider that it is built for
    gate: PASSED, or why it was not run
    weights: the files below WEIGHTS that its graphs read, by the names that the graphs know them by
    """

    provider: Name
    gate: TextLine
    weights: tuple[FileName, ...]
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which rows of the cross-attention tell alignments: their mean over these heads of this layer."""

    layer: Index
    heads: Annotated[tuple[Index, ...], MaxLength(1024)]


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that a bundle declares of itself."""

    name: Name
    version: Annotated[int, Range(1, 2**31 - 1)]
    created: TextLine
    source_language: Language
    target_language: Language
    architecture: TextLine
    source_vocab: Size
    target_vocab: Size
    special_ids: dict[str, int]
    limits: Limits
    defaults: Defaults
    candidates: Annotated[int, Range(1, 2048)]
    states: Annotated[tuple[State, ...], MaxLength(4096)]
    precisions: dict[Name, Precision]
    alignment: Alignment
    shortlist: dict[str, Any] | None = None  # what its gate found; None where the bundle has no shortlist
    checksums: Annotated[dict[FilePath, Sha256], MaxLength(1000)] = field(default_factory=dict)
    format: int = FORMAT

    def states_of(self, kind: StateKind) -> tuple[State, ...]:
        """The states of one kind."""
        return tuple(state for state in self.states if state.kind == kind)

    def to_bytes(self) -> bytes:
        """The one way this manifest is written, its own digest last; any other byte sequence is refused."""
        body = _dump(asdict(self))
        return _dump({**json.loads(body), "digest": hashlib.sha256(body).hexdigest()})

    @classmethod
    def from_bytes(cls, content: bytes, origin: Path) -> Manifest:
        """The manifest that was written; origin is named in errors."""
        try:
            values = json.loads(content, parse_constant=_no_number)
            found = values.pop("format")
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            raise BundleError(f"{origin}: not a manifest") from None
        if found != FORMAT:
            shown = repr(found)[:60]
            raise BundleError(f"{origin}: bundle format {shown}; this version of Lingon reads format {FORMAT}")
        values.pop("digest", None)
        try:
            manifest = parse_dataclass(cls, {**values, "format": found})
            intact = manifest.to_bytes() == content
            problem = next(manifest._contradictions(), None)
        except SchemaError as error:
            raise BundleError(f"{origin}: {error}") from None
        except (ValueError, RecursionError):
            raise BundleError(f"{origin}: not a manifest") from None
        if not intact:
            raise BundleError(f"{origin}: was altered (its digest does not fit)")
        if problem is not None:
            raise BundleError(f"{origin}: {problem}")
        return manifest

    def _contradictions(self) -> Iterator[str]:
        """What cannot be, of values that each could."""
        limits, defaults = self.limits, self.defaults
        special = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}
        if self.special_ids != special:
            yield f"special_ids must be {special}, got {self.special_ids}"
        least = min(2 * limits.max_beam_size, self.target_vocab)
        if not least <= self.candidates <= self.target_vocab:
            yield f"candidates must be {least} to {self.target_vocab}, got {self.candidates}"
        if limits.max_output(1) < 1:
            yield "limits.output_extra must be at least 1 where limits.output_factor is below 1"
        if defaults.beam_size > limits.max_beam_size:
            yield f"defaults.beam_size must be 1 to {limits.max_beam_size}, got {defaults.beam_size}"
        if defaults.num_hypotheses > defaults.beam_size:
            yield f"defaults.num_hypotheses must be 1 to {defaults.beam_size}, got {defaults.num_hypotheses}"
        if len({state.name for state in self.states}) < len(self.states):
            yield "states: two have one name"
        for place, state in enumerate(self.states):
            if state.varying not in VARYING[state.kind]:
                yield f"states[{place}].shape does not vary as that of a {state.kind}: {list(state.shape)}"
        sizes = {"source_length": limits.max_source_tokens, "capacity": limits.max_target_tokens}
        elements = sum(math.prod(state.sized(**sizes)) for state in self.states)
        if elements > MAX_STATE_ELEMENTS:
            yield f"states must come to {MAX_STATE_ELEMENTS:,} numbers for a sentence at most, come to {elements:,}"


def _no_number(name: str) -> Never:
    raise ValueError(name)


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
