"""The manifest of a bundle: the contract of an export, which writes it, and a server, which reads it.

A bundle holds data only, and a published version never changes. No file in its folder is a link. The folder itself may
be reached by one. A reader reads regular files only, checks their size, and uses the same bytes that it hashed. Every
value of the manifest has the type and the bounds that are declared below: first the languages of a bundle that serves
several, then what a bundle knows about texts, then the manifest itself.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Never

from lingon.bundle.names import CROSS_ATTENTION, TOKEN_LOG_PROBS
from lingon.bundle.schema import MaxLength, Pattern, Range, SchemaError, parse_dataclass
from lingon.errors import BundleError, DamagedBundle, first_of
from lingon.terms.annotation import AnnotationForm
from lingon.text import BOS, EOS, PAD, UNK, LanguageTokens

MANY = "mul"  # of ISO 639: several languages; what a manifest names where there are several
MOST_LANGUAGES = 500  # on each side
MOST_SHOWN = 20  # languages in a line

Language = Annotated[str, Pattern(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,8}", "a BCP-47 language tag")]
TokenIds = Annotated[tuple[Annotated[int, Range(0, 2**20)], ...], MaxLength(16)]


def shown_languages(tags: Sequence[str]) -> str:
    """Return tags for a line of text, the first MOST_SHOWN of them."""
    return first_of(tags, MOST_SHOWN)


@dataclass(frozen=True, slots=True)
class SourceLanguage:
    """A language that is translated.

    before, after: source ids before the pieces of a text, and after its end token if the model reads one
    """

    language: Language
    before: TokenIds
    after: TokenIds


@dataclass(frozen=True, slots=True)
class TargetLanguage:
    """A language that is translated into.

    source: source ids before all others
    forced: target ids that every translation begins with, and that are not part of it
    """

    language: Language
    source: TokenIds
    forced: TokenIds


@dataclass(frozen=True, slots=True)
class Languages:
    """Every source language is translated into every other target language."""

    sources: Annotated[tuple[SourceLanguage, ...], MaxLength(MOST_LANGUAGES)]
    targets: Annotated[tuple[TargetLanguage, ...], MaxLength(MOST_LANGUAGES)]

    def tokens(self, source: str, target: str) -> LanguageTokens:
        """Return the tokens of a pair. Raise KeyError for a language that is not there. The tags are as here."""
        of_source = {each.language: each for each in self.sources}[source]
        of_target = {each.language: each for each in self.targets}[target]
        return LanguageTokens((*of_target.source, *of_source.before), of_source.after, of_target.forced)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs that are served, as they are written here."""
        for source in self.sources:
            for target in self.targets:
                if source.language != target.language:
                    yield source.language, target.language

    @property
    def pair(self) -> tuple[str, str]:
        """The source and the target language, MANY for a side that has several."""
        sides = [each.language for each in self.sources], [each.language for each in self.targets]
        source, target = (side[0] if len(side) == 1 else MANY for side in sides)
        return source, target

    @property
    def most_source_tokens(self) -> int:
        """The largest number of tokens that a pair adds to a source."""
        of_sources = (len(each.before) + len(each.after) for each in self.sources)
        return max(of_sources, default=0) + max((len(each.source) for each in self.targets), default=0)

    @property
    def most_forced_tokens(self) -> int:
        """The largest number of tokens that a translation begins with and that are not part of it."""
        return max((len(each.forced) for each in self.targets), default=0)

    def __str__(self) -> str:
        """Return the languages of both sides for a line of text."""
        source, target = (shown_languages([each.language for each in side]) for side in (self.sources, self.targets))
        return f"{source} to {target}"

    def problems(self, source_vocab: int, target_vocab: int) -> Iterator[str]:
        """Yield messages about what contradicts the vocabularies or itself."""
        sides = [each.language for each in self.sources], [each.language for each in self.targets]
        for side, names in zip(("sources", "targets"), sides, strict=True):
            lower = [name.lower() for name in names]
            if len(set(lower)) < len(lower):
                yield f"languages.{side}: two have the same language"
        if next(self.pairs(), None) is None:
            yield "languages must have a pair of two different languages"
        read = [token for each in self.sources for token in (*each.before, *each.after)]
        read += [token for each in self.targets for token in each.source]
        written = [token for each in self.targets for token in each.forced]
        for name, ids, bound in (("source", read, source_vocab), ("target", written, target_vocab)):
            if max(ids, default=0) >= bound:
                yield f"languages: the {name} ids must be below {bound}, got {max(ids)}"
        for each in self.targets:
            if EOS in each.forced:  # every translation would end there
                yield f"languages: {each.language} must not force the end token"


Feature = Literal["mean", "root", "total", "characters", "ratio", "unknown"]
Share = Annotated[float, Range(0, 1)]
Weight = Annotated[float, Range(-1e6, 1e6)]
TokenRatio = Annotated[float, Range(0, 1e6)]
GuardWord = Annotated[str, Pattern(r"\w{1,64}", "a word of at most 64 letters and digits")]


@dataclass(frozen=True, slots=True)
class LengthRange:
    """The usual lengths of translations of sources with at most `most_source` tokens.

    least, most: target tokens / source tokens, without end tokens. One pair of 1,000 is below, and one is above
    """

    most_source: Annotated[int, Range(1, 2**15)]
    least: TokenRatio
    most: TokenRatio


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Sentences of held-out text with a similar confidence.

    confidence: their mean; right: the share of them whose chrF is at least 50
    """

    sentences: Annotated[int, Range(1, 2**31)]
    confidence: Share
    right: Share


@dataclass(frozen=True, slots=True)
class Confidence:
    """A logistic regression for the probability that a translation has a chrF of at least 50.

    The probability is 1 / (1 + exp(-(bias + sum of weight * feature))).

    weights: of each feature; `lingon.serving.guard` computes the features
    low: below it a translation has LOW_CONFIDENCE; 1 % of held-out text of the bundle's own kind is below
    reliability: what the confidence was worth on held-out text of the bundle's own kind, ascending
    """

    bias: Weight
    weights: dict[Feature, Weight]
    low: Share
    reliability: Annotated[tuple[ReliabilityBin, ...], MaxLength(100)]


@dataclass(frozen=True, slots=True)
class TextData:
    """See the fields.

    words: words that translate to themselves, the surest first
    lengths: ascending by most_source. The last one holds for longer sources too, empty if they were not measured
    confidence: None if it was not fitted

    The profiles of the two languages are in PROFILES, if there was enough training text.
    """

    words: Annotated[tuple[GuardWord, ...], MaxLength(64)]
    lengths: Annotated[tuple[LengthRange, ...], MaxLength(64)] = ()
    confidence: Confidence | None = None


FORMAT = 8  # the only one that is written and read; it changes when the manifest or the meaning of a graph does

SINCE_FORMAT_8 = ("origin", "terms")
"""Fields that came after format 8. They are left out where they are None, so that older bundles keep their bytes."""

PASSED = "passed"  # value of Precision.gate after a successful check

StateKind = Literal["memory", "cache", "recurrent"]
VARYING = {"memory": ([], ["source_length"]), "cache": (["capacity"],), "recurrent": ([],)}
"""The variable dimensions that a shape of each kind of state may have."""

LEAST_PIECES = 10  # of a source, the end token counted, beside the tokens of a pair of languages
MAX_STATE_ELEMENTS = 2**28  # in all states of the longest sentence; a large model of today has a tenth of it

_FILE = r"\w[\w.+ -]*"
BundleName = Annotated[str, Pattern(r"\w[\w.+-]{0,127}", "a name of letters, digits and . + - _")]
FileName = Annotated[str, Pattern(rf"(?=.{{1,128}}$){_FILE}", "the name of a file")]
FilePath = Annotated[str, Pattern(rf"(?=.{{1,255}}$){_FILE}(/{_FILE})*", "a path within the bundle")]
TextLine = Annotated[str, Pattern(r"[^\x00-\x1f\x7f]{0,500}", "one line of text")]
Sha256 = Annotated[str, Pattern(r"[0-9a-f]{64}", "a SHA-256 in hexadecimal")]
BundleSize = Annotated[int, Range(1, 2**20)]
Varying = Annotated[str, Pattern("source_length|capacity", "a size, source_length or capacity")]
TokenCount = Annotated[int, Range(1, 2**15)]
BeamSize = Annotated[int, Range(1, 128)]
LengthPenalty = Annotated[float, Range(0, 10)]
Index = Annotated[int, Range(0, 1023)]


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that the decoder reads at every step.

    kind:
        memory     one for each sentence, shared by its beams: the encoder's output and the decoder's input NAME
        cache      one for each row, which grows in place by one position a step: input past.NAME, output present.NAME
        recurrent  one for each row, replaced at every step. Its first value is the encoder's output NAME
    shape: of one sentence or row. "source_length" and "capacity" stand for variable sizes. The graphs of each
        precision determine the type of the elements.
    """

    name: BundleName
    kind: StateKind
    shape: Annotated[tuple[Varying | BundleSize, ...], MaxLength(8)]

    def sized(self, **sizes: int) -> tuple[int, ...]:
        """Return the shape with "source_length" and "capacity" replaced by these sizes."""
        return tuple(size if isinstance(size, int) else sizes[size] for size in self.shape)

    @property
    def varying(self) -> list[str]:
        """The variable dimensions of the shape, by name."""
        return [size for size in self.shape if isinstance(size, str)]


ScoreName = Annotated[str, Pattern(r"[a-z0-9][a-z0-9.-]{0,63}", "a name of small letters, digits and . -")]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an imported model comes from, and what its publisher says of it.

    source: a repository with its revision, as Helsinki-NLP/opus-mt-en-de@3a5f, a URL, or the form of its files
    licence: as its publisher states it, empty if nothing states one
    scores: published ones by test set and metric, as flores-bleu (0 to 100) and flores-comet (0 to 1)
    """

    source: TextLine
    licence: TextLine
    scores: Annotated[dict[ScoreName, Annotated[float, Range(-1000, 1000)]], MaxLength(100)]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a model, in tokens. The end token is one of them where the model reads or writes it."""

    max_source_tokens: TokenCount
    max_target_tokens: TokenCount
    output_factor: Annotated[float, Range(0, 100)]
    output_extra: Annotated[int, Range(0, 2**15)]
    max_beam_size: BeamSize

    def max_output(self, source_tokens: int) -> int:
        """Return the largest number of target tokens for a source of source_tokens."""
        return min(int(self.output_factor * source_tokens) + self.output_extra, self.max_target_tokens)


@dataclass(frozen=True, slots=True)
class Defaults:
    """The default options of a request."""

    beam_size: BeamSize = 1
    num_hypotheses: BeamSize = 1
    length_penalty: LengthPenalty = 1.0
    shortlist: bool = False


@dataclass(frozen=True, slots=True)
class Precision:
    """One set of graphs.

    provider: the ONNX Runtime provider that the graphs are built for
    gate: PASSED, or the reason why the checks were not run
    weights: the files below WEIGHTS that the graphs read, by the names that the graphs use
    report: the results of the checks. "verification" has those of `lingon verify`
    """

    provider: BundleName
    gate: TextLine
    weights: tuple[FileName, ...]
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alignment:
    """The source of alignments: the mean of the cross-attention over these heads of this layer, or none without
    heads.
    """

    layer: Index
    heads: Annotated[tuple[Index, ...], MaxLength(1024)]


NO_ALIGNMENT = Alignment(0, ())
"""The alignment of a model without any."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of manifest.json."""

    name: BundleName
    version: Annotated[int, Range(1, 2**31 - 1)]
    created: TextLine
    source_language: Language
    target_language: Language
    architecture: TextLine  # transformer, rnnenc, rnnsearch or luong; no reader depends on it
    source_vocab: BundleSize
    target_vocab: BundleSize
    special_ids: dict[str, int]
    limits: Limits
    defaults: Defaults
    candidates: Annotated[int, Range(1, 2048)]
    states: Annotated[tuple[State, ...], MaxLength(4096)]
    precisions: dict[BundleName, Precision]
    alignment: Alignment
    shortlist: dict[str, Any] | None = None  # results of its check; None without a shortlist
    text: TextData | None = None  # None without calibration
    languages: Languages | None = None  # None for one pair, which needs no tokens of its own
    source_end: bool = True  # whether a source ends with the end token; those of OpenNMT's models do not
    origin: Origin | None = None  # None for a model that was not imported
    terms: AnnotationForm | None = None  # of the sources that the model was trained with, None without such sources
    checksums: Annotated[dict[FilePath, Sha256], MaxLength(1000)] = field(default_factory=dict)
    format: int = FORMAT

    def states_of(self, kind: StateKind) -> tuple[State, ...]:
        """Return the states of one kind."""
        return tuple(state for state in self.states if state.kind == kind)

    @property
    def scorer_outputs(self) -> tuple[str, ...]:
        """The outputs that every scorer of this bundle has. A model without alignments needs no attention."""
        return (TOKEN_LOG_PROBS, CROSS_ATTENTION) if self.alignment.heads else (TOKEN_LOG_PROBS,)

    def capacity(self, source_tokens: int) -> int:
        """Return the largest number of target tokens for a source of source_tokens, those that name a language
        included.
        """
        forced = self.languages.most_forced_tokens if self.languages is not None else 0
        return min(self.limits.max_output(source_tokens) + forced, self.limits.max_target_tokens)

    def measured_bleu(self) -> float | None:
        """Return the highest BLEU that the export measured, or None if it measured none."""
        reports = (precision.report.get("quality") for precision in self.precisions.values())
        found = [report.get("bleu") for report in reports if isinstance(report, dict)]
        return max((bleu for bleu in found if isinstance(bleu, float)), default=None)

    def for_pair(self, source: str, target: str) -> Manifest:
        """Return this manifest as one pair of its languages sees it. Raises KeyError for a language that is not
        there.
        """
        if self.languages is None:
            raise KeyError(f"{source}-{target}")
        tokens, limits = self.languages.tokens(source, target), self.limits
        limits = replace(limits, max_target_tokens=limits.max_target_tokens - len(tokens.forced))
        return replace(self, source_language=source, target_language=target, limits=limits, languages=None)

    def to_bytes(self) -> bytes:
        """Return the only byte sequence of this manifest that a reader accepts. It ends with its own digest."""
        values = asdict(self)
        for name in SINCE_FORMAT_8:
            if values[name] is None:
                del values[name]
        body = _dump(values)
        return _dump({**json.loads(body), "digest": hashlib.sha256(body).hexdigest()})

    @classmethod
    def from_bytes(cls, content: bytes, origin: Path) -> Manifest:
        """Parse the content of manifest.json. Raises BundleError, which names origin; DamagedBundle if it is cut."""
        try:
            values = json.loads(content, parse_constant=_refuse_constant)
            found = values.pop("format")
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            raise DamagedBundle(f"{origin}: not a manifest") from None
        if found != FORMAT or type(found) is not int:
            raise BundleError(
                f"{origin}: has bundle format {repr(found)[:60]}, this version of Lingon reads format {FORMAT}; write "
                f"the bundle again with lingon export or lingon import"
            )
        values.pop("digest", None)
        try:
            manifest = parse_dataclass(cls, {**dict.fromkeys(SINCE_FORMAT_8), **values, "format": found})
            intact = manifest.to_bytes() == content
            problem = next(manifest._contradictions(), None)
        except SchemaError as error:
            raise BundleError(f"{origin}: {error}") from None
        except (ValueError, RecursionError):
            raise BundleError(f"{origin}: not a manifest") from None
        if not intact:
            raise DamagedBundle(f"{origin}: was altered (its digest does not fit)")
        if problem is not None:
            raise BundleError(f"{origin}: {problem}")
        return manifest

    def _contradictions(self) -> Iterator[str]:
        """Yield messages about values that are valid by themselves but contradict each other."""
        limits, defaults, text = self.limits, self.defaults, self.text
        special = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}
        if self.special_ids != special:
            yield f"special_ids must be {special}, got {self.special_ids}"
        minimum = min(2 * limits.max_beam_size, self.target_vocab)
        if not minimum <= self.candidates <= self.target_vocab:
            yield f"candidates must be {minimum} to {self.target_vocab}, got {self.candidates}"
        if limits.max_output(1) < 1:
            yield "limits.output_extra must be at minimum 1 if limits.output_factor is below 1"
        if defaults.beam_size > limits.max_beam_size:
            yield f"defaults.beam_size must be 1 to {limits.max_beam_size}, got {defaults.beam_size}"
        if defaults.num_hypotheses > defaults.beam_size:
            yield f"defaults.num_hypotheses must be 1 to {defaults.beam_size}, got {defaults.num_hypotheses}"
        if len({state.name for state in self.states}) < len(self.states):
            yield "states: two have the same name"
        for position, state in enumerate(self.states):
            if state.varying not in VARYING[state.kind]:
                yield f"states[{position}].shape has not the variable dimensions of a {state.kind}: {list(state.shape)}"
        if text is not None and any(one.most_source >= two.most_source for one, two in pairwise(text.lengths)):
            yield "text.lengths must be ascending by most_source"
        if self.languages is not None:
            yield from self._language_problems(self.languages)
        if self.terms is not None and (wrong := self.terms.problem()) is not None:
            yield wrong
        sizes = {"source_length": limits.max_source_tokens, "capacity": limits.max_target_tokens}
        elements = sum(math.prod(state.sized(**sizes)) for state in self.states)
        if elements > MAX_STATE_ELEMENTS:
            yield f"states must have at most {MAX_STATE_ELEMENTS:,} elements for a sentence, got {elements:,}"

    def _language_problems(self, languages: Languages) -> Iterator[str]:
        """Yield messages about languages that contradict other values."""
        yield from languages.problems(self.source_vocab, self.target_vocab)
        if (self.source_language, self.target_language) != languages.pair:
            yield f"source_language and target_language must be {' and '.join(languages.pair)}, as languages says"
        if self.text is not None:
            yield "text must be null with languages: it is of one pair"
        limits = self.limits
        if languages.most_source_tokens + LEAST_PIECES > limits.max_source_tokens:
            added, most = languages.most_source_tokens, limits.max_source_tokens
            yield f"languages: {added} tokens of a pair leave no room in {most} source tokens"
        if languages.most_forced_tokens >= limits.max_target_tokens:
            yield f"languages: no room in {limits.max_target_tokens} target tokens"


def _refuse_constant(name: str) -> Never:
    raise ValueError(name)


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


POOR_BLEU = 5.0
"""BLEU. A model below it translates hardly any sentence, so that it was most likely trained for too short a time."""


def poor_quality(bleu: float | None) -> str | None:
    """Return a warning about a model with a low BLEU, or None if it is high enough or unknown."""
    if bleu is None or bleu >= POOR_BLEU:
        return None
    return f"BLEU is {bleu:.2f}, below {POOR_BLEU:g}: this model hardly translates; train it for longer or on more text"
