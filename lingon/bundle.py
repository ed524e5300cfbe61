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
        tokenizer.model (or source.model and target.model)
        MODEL_CARD.md

A bundle is data only, and a published version never changes.

Dimensions: batch (sentences of one encoder run), sentences (of a running batch), rows (sentences * beam_size),
source_length, target_length, capacity (positions that a cache has room for), heads, head_dim, vocab, candidates,
union (pieces that some sentence of a running batch has on its shortlist).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from lingon.errors import BundleError
from lingon.files import published

FORMAT = 2
MANIFEST, CARD = "manifest.json", "MODEL_CARD.md"
ENCODER, DECODER, SCORER = "encoder.onnx", "decoder.onnx", "scorer.onnx"
OUTPUT_ROWS, DECODER_SHORTLIST = "output_rows.onnx", "decoder_shortlist.onnx"
WEIGHTS, SHORTLIST = "weights", "shortlist.npz"

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

    name: str
    kind: StateKind
    shape: tuple[int | str, ...]

    def sized(self, **sizes: int) -> tuple[int, ...]:
        """The shape with its names replaced by sizes."""
        return tuple(size if isinstance(size, int) else sizes[size] for size in self.shape)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a model, in tokens with the end token counted."""

    max_source_tokens: int
    max_target_tokens: int
    output_factor: float
    output_extra: int
    max_beam_size: int

    def max_output(self, source_tokens: int) -> int:
        """The most target tokens for a source of source_tokens."""
        return min(int(self.output_factor * source_tokens) + self.output_extra, self.max_target_tokens)


@dataclass(frozen=True, slots=True)
class Defaults:
    """How a translation is searched for where the request does not say."""

    beam_size: int = 1
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    shortlist: bool = False


@dataclass(frozen=True, slots=True)
class Precision:
    """One set of graphs.

    provider: the onnxruntime provider that it is built for
    gate: "passed", or why it was not run
    weights: the files below WEIGHTS that its graphs read, by the names that the graphs know them by
    """

    provider: str
    gate: str
    weights: tuple[str, ...]
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which rows of the cross-attention tell alignments: their mean over these heads of this layer."""

    layer: int
    heads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that a bundle declares of itself."""

    name: str
    version: int
    created: str
    source_language: str
    target_language: str
    architecture: str
    source_vocab: int
    target_vocab: int
    special_ids: dict[str, int]
    limits: Limits
    defaults: Defaults
    candidates: int
    states: tuple[State, ...]
    precisions: dict[str, Precision]
    alignment: Alignment
    shortlist: dict[str, Any] | None = None  # what its gate found; None where the bundle has no shortlist
    checksums: dict[str, str] = field(default_factory=dict)
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
            values = json.loads(content)
            found = values.pop("format")
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            raise BundleError(f"{origin}: not a manifest") from None
        if found != FORMAT:
            raise BundleError(f"{origin}: bundle format {found!r}; this version of Lingon reads format {FORMAT}")
        values.pop("digest", None)
        try:
            manifest = cls(
                **{
                    **values,
                    "limits": Limits(**values["limits"]),
                    "defaults": Defaults(**values["defaults"]),
                    "states": tuple(State(**{**state, "shape": tuple(state["shape"])}) for state in values["states"]),
                    "precisions": {name: _precision(value) for name, value in values["precisions"].items()},
                    "alignment": Alignment(values["alignment"]["layer"], tuple(values["alignment"]["heads"])),
                }
            )
            intact = manifest.to_bytes() == content
        except (TypeError, KeyError, AttributeError, ValueError):
            raise BundleError(f"{origin}: lacks or adds a field of format {FORMAT}") from None
        if not intact:
            raise BundleError(f"{origin}: was altered (its digest does not fit)")
        return manifest


@dataclass(frozen=True, slots=True)
class Bundle:
    """An opened bundle. Every file is read through `read`, which refuses what was altered."""

    folder: Path
    manifest: Manifest

    @property
    def label(self) -> str:
        """Name and version, as in "en-de/1"."""
        return f"{self.manifest.name}/{self.manifest.version}"

    def read(self, name: str) -> bytes:
        """The bytes of a file, checked: what is used is what was hashed."""
        path = self.folder / name
        if name not in self.manifest.checksums:
            raise BundleError(f"{path}: the manifest does not list it")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BundleError(f"{path}: {error.strerror}") from None
        if hashlib.sha256(content).hexdigest() != self.manifest.checksums[name]:
            raise BundleError(f"{path}: was altered (its SHA-256 is not the one in {MANIFEST})")
        return content

    def graphs(self, precision: str, *names: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The named graph files of a precision, and the weight files that they read, by the names they give them."""
        if precision not in self.manifest.precisions:
            known = ", ".join(self.manifest.precisions)
            raise BundleError(f"{self.folder}: has no precision {precision!r}; it has {known}")
        graphs = {name: self.read(f"{precision}/{name}") for name in names}
        return graphs, {name: self.read(f"{WEIGHTS}/{name}") for name in self.manifest.precisions[precision].weights}

    def tokenizer_files(self) -> list[bytes]:
        """The sentencepiece models: one for both sides, or source and target."""
        return [self.read(name) for name in sorted(self.manifest.checksums) if re.fullmatch(r"\w+\.model", name)]

    def verify(self) -> None:
        """Read every file once; the error names the first that is missing, altered or not listed."""
        for name in self.manifest.checksums:
            self.read(name)
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if not path.is_dir() and name != MANIFEST and name not in self.manifest.checksums:
                raise BundleError(f"{path}: the manifest does not list it")


def is_bundle(path: Path) -> bool:
    """Whether path is a bundle or the folder of a model's versions."""
    return (path / MANIFEST).is_file() or bool(versions(path))


def versions(path: Path) -> list[int]:
    """The versions in the folder of a model, lowest first."""
    if not path.is_dir():
        return []
    numbered = (child for child in path.iterdir() if re.fullmatch(r"[1-9]\d*", child.name))
    return sorted(int(child.name) for child in numbered if (child / MANIFEST).is_file())


def open_bundle(path: Path) -> Bundle:
    """The bundle at path, or the highest version below it; only its manifest is read yet."""
    folder = path
    if not (path / MANIFEST).is_file():
        found = versions(path)
        if not found:
            raise BundleError(f"{path}: no bundle (no {MANIFEST}) and no version of one")
        folder = path / str(found[-1])
    try:
        content = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise BundleError(f"{folder / MANIFEST}: {error.strerror}") from None
    return Bundle(folder, Manifest.from_bytes(content, folder / MANIFEST))


def write_bundle(folder: Path, manifest: Manifest, files: dict[str, bytes]) -> Bundle:
    """Publish a bundle whole or not at all; the checksums of files are put into the manifest."""
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    values = {entry.name: getattr(manifest, entry.name) for entry in fields(manifest)}
    complete = Manifest(**{**values, "checksums": sums})
    try:
        with published(folder) as part:
            for name, content in files.items():
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                (part / name).write_bytes(content)
            (part / MANIFEST).write_bytes(complete.to_bytes())
    except FileExistsError:
        raise BundleError(f"{folder}: is there already; a published version never changes") from None
    return Bundle(folder, complete)


def _precision(values: dict[str, Any]) -> Precision:
    return Precision(**{**values, "weights": tuple(values["weights"])})


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
