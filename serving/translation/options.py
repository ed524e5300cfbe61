"""The options of a request, with defaults, and every value checked against the model's limits.

They select how texts are read and decoded, and what the reply holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import NamedTuple, TypeAlias

from lingon.bundle.manifest import Manifest
from lingon.errors import InvalidRequest, SettingsError, Unsupported
from lingon.segments.layout import Split
from lingon.segments.markup_tokens import NO_RULES, MarkupRules
from lingon.segments.protection import NO_STRINGS, KeptStrings
from lingon.serving.decoding.job import Alternative, Options, Sampling, ended_hypotheses
from lingon.serving.decoding.rules import (
    FORBIDDEN_WORDS,
    FORCED_WORDS,
    MAX_FORBIDDEN_WORDS,
    MAX_FORCED_WORDS,
    RequestRules,
    Vocabulary,
    checked_words,
)
from lingon.translation.v1 import translation_pb2 as pb

MAX_KEEP = 256  # strings
MAX_TAGS = 256  # names in each list of elements
MAX_KEEP_CHARACTERS = 256  # characters of each string to keep, and of each name

Policy: TypeAlias = pb.GuardPolicy.ValueType

WHOLE = pb.TextOptions(
    split_sentences=pb.SENTENCE_SPLITTING_OFF, protect=False, lower_capitals=False, guard=pb.GUARD_POLICY_OFF
)
"""Options for texts that the model reads and writes unchanged."""

_NOT_IN_NAMES = re.compile(r"[\s\"'<>/=]")

_SPLITS = {
    pb.SENTENCE_SPLITTING_ON: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_NONEWLINES: Split.NONEWLINES,
    pb.SENTENCE_SPLITTING_OFF: Split.OFF,
}


class Format(Enum):
    """The format of a text."""

    PLAIN = pb.TEXT_FORMAT_PLAIN
    HTML = pb.TEXT_FORMAT_HTML
    XML = pb.TEXT_FORMAT_XML
    PIECES = pb.TEXT_FORMAT_PIECES

    @property
    def is_markup(self) -> bool:
        """Whether texts have tags."""
        return self in (Format.HTML, Format.XML)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextChoice:
    """The options of `TextOptions`, checked and with defaults.

    twins: whether characters that the model lacks are replaced by twins
    """

    format: Format = Format.PLAIN
    rules: MarkupRules = NO_RULES
    sentences: Split = Split.SENTENCES
    return_sentences: bool = False
    keep: KeptStrings = NO_STRINGS
    protect: bool = True
    lower_capitals: bool = True
    twins: bool = True
    guard: Policy = pb.GUARD_POLICY_WARN
    localise_numbers: bool = False


def text_choice(
    asked: pb.TextOptions, *, forced: bool, greedy: bool, forbidden: Sequence[str] = (), conflict: str = ""
) -> TextChoice:
    """Return the options to use. Raises InvalidRequest.

    forbidden: words that translations must not have; the model would not recognise them in lower case
    forced: whether translations have forced words, which belong to one sentence and to the text that the model reads
    greedy: whether the search is greedy
    conflict: the option that excludes another translation of a sentence; empty without one
    """
    written = format_of(asked.format, "text.format")
    if forced and asked.keep:
        raise InvalidRequest("text.keep", "text.keep cannot be used with options.forced_words")
    for word in forbidden:
        if any(word in kept for kept in asked.keep):
            raise InvalidRequest("text.keep", f"text.keep has a string with the forbidden word {word!r}")
    if forced and written is not Format.PLAIN:
        raise InvalidRequest("text.format", "text.format must be plain with options.forced_words")
    if written is Format.PIECES:
        return _for_pieces(asked)
    if asked.localise_numbers and (forced or (asked.HasField("protect") and not asked.protect)):
        reason = "options.forced_words" if forced else "text.protect set to false"
        raise InvalidRequest("text.localise_numbers", f"text.localise_numbers cannot be used with {reason}")
    return TextChoice(
        format=written,
        rules=_markup_rules(asked, written),
        sentences=_splitting(asked, written, forced=forced),
        return_sentences=asked.return_sentences,
        keep=KeptStrings(_strings(asked.keep, "text.keep", MAX_KEEP)),
        protect=not forced and (asked.protect or not asked.HasField("protect")),
        lower_capitals=not (forced or forbidden) and (asked.lower_capitals or not asked.HasField("lower_capitals")),
        twins=asked.protect
        or asked.lower_capitals
        or not (asked.HasField("protect") and asked.HasField("lower_capitals")),
        guard=_policy(asked.guard, conflict, greedy=greedy),
        localise_numbers=asked.localise_numbers,
    )


def _for_pieces(asked: pb.TextOptions) -> TextChoice:
    """Return the options of texts in pieces. Raises InvalidRequest for options that need text."""
    needless = {
        "keep": bool(asked.keep),
        "protect": asked.protect,
        "lower_capitals": asked.lower_capitals,
        "localise_numbers": asked.localise_numbers,
        "split_sentences": asked.split_sentences not in (pb.SENTENCE_SPLITTING_UNSPECIFIED, pb.SENTENCE_SPLITTING_OFF),
        "guard": asked.guard not in (pb.GUARD_POLICY_UNSPECIFIED, pb.GUARD_POLICY_OFF),
    }
    for name, given in needless.items():
        if given:
            raise InvalidRequest(f"text.{name}", f"text.{name} must be unset or off with texts in pieces")
    return TextChoice(
        format=Format.PIECES,
        rules=_markup_rules(asked, Format.PIECES),
        sentences=Split.OFF,
        return_sentences=asked.return_sentences,
        protect=False,
        lower_capitals=False,
        guard=pb.GUARD_POLICY_OFF,
    )


def _policy(asked: Policy, conflict: str, *, greedy: bool) -> Policy:
    if asked not in pb.GuardPolicy.values():
        raise InvalidRequest("text.guard", f"text.guard has no value {asked}")
    if asked == pb.GUARD_POLICY_UNSPECIFIED:
        return pb.GUARD_POLICY_RETRY if greedy and not conflict else pb.GUARD_POLICY_WARN
    if asked == pb.GUARD_POLICY_RETRY and conflict:
        raise InvalidRequest("text.guard", f"text.guard must not be GUARD_POLICY_RETRY with {conflict}")
    return asked


def format_of(asked: pb.TextFormat.ValueType, field: str) -> Format:
    """Return the format of texts. Raises InvalidRequest, which names the field, for an invalid value."""
    try:
        return Format(asked or pb.TEXT_FORMAT_PLAIN)
    except ValueError:
        raise InvalidRequest(field, f"{field} has no value {asked}") from None


def _splitting(asked: pb.TextOptions, written: Format, *, forced: bool) -> Split:
    if asked.split_sentences == pb.SENTENCE_SPLITTING_UNSPECIFIED:
        if forced:
            return Split.OFF
        return Split.NONEWLINES if written.is_markup else Split.SENTENCES
    if asked.split_sentences not in _SPLITS:
        raise InvalidRequest("text.split_sentences", f"text.split_sentences has no value {asked.split_sentences}")
    return _SPLITS[asked.split_sentences]


def _markup_rules(asked: pb.TextOptions, written: Format) -> MarkupRules:
    names = ("ignore_tags", "splitting_tags", "non_splitting_tags", "translate_attributes")
    lists = {name: getattr(asked, name) for name in names}
    for name, tags in lists.items():
        if tags and not written.is_markup:
            raise InvalidRequest(f"text.{name}", f"text.{name} needs a text.format with markup, HTML or XML")
        _strings(tags, f"text.{name}", MAX_TAGS)
    for index, name in enumerate(asked.translate_attributes):
        if found := _NOT_IN_NAMES.search(name):
            field = f"text.translate_attributes[{index}]"
            raise InvalidRequest(field, f"{field} must be the name of an attribute, which has no {found[0]!r}")
    try:
        rules = MarkupRules.of(*lists.values())
        return rules.lowered() if written is Format.HTML else rules
    except SettingsError as error:
        raise InvalidRequest("text.splitting_tags", f"text: {error}") from None


def _strings(strings: Sequence[str], field: str, most: int) -> tuple[str, ...]:
    """Return the strings of a list. Raises InvalidRequest."""
    if len(strings) > most:
        raise InvalidRequest(field, f"{field} must have at most {most} strings, got {len(strings)}")
    for index, string in enumerate(strings):
        if not string.strip() or len(string) > MAX_KEEP_CHARACTERS:
            raise InvalidRequest(
                field,
                f"{field}[{index}] must have 1 to {MAX_KEEP_CHARACTERS} characters and not only white space, got "
                f"{len(string)}",
            )
    return tuple(strings)


MAX_LENGTH_PENALTY = 10.0
MAX_TEMPERATURE = 10.0
MAX_NGRAM = 32  # tokens
MAX_REPETITION_PENALTY = 100.0
MAX_PATIENCE = 10.0
MAX_COVERAGE_PENALTY = 10.0
MAX_ALTERNATIVES = 32  # alternatives; each is a separate job


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedOptions:
    """The options of one request: how its texts are translated, and what the reply holds.

    job: the options of every job, except those that `job_options` sets; if the request samples or wants alternatives,
        each hypothesis is a job
    coverage_penalty: penalty in the score; 0 means none
    prefix_bias: the weight of target prefixes; 1 means that translations must begin with them
    alternatives: number of tokens after the prefix that are completed; 0 means a plain search
    message: the used options, for the reply
    """

    job: Options
    num_hypotheses: int
    max_output_tokens: int  # tokens with the end token; the bound of each text applies too
    return_tokens: bool
    return_alignment: bool
    splits: bool  # whether a sentence that is longer than the model reads is split
    message: pb.DecodingOptions
    text: TextChoice
    rules: RequestRules | None = None  # words that translations must have or must not have
    coverage_penalty: float = 0.0
    prefix_bias: float = 1.0
    alternatives: int = 0
    restrictions: Restrictions | None = None  # see `rules_with`
    # The options of plain jobs by their bound. Every request with these options shares them, and a copy takes 4 µs.
    _by_length: dict[int, Options] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def restricts(self) -> bool:
        """Whether translations are drawn at random, or the request restricts them."""
        return self.rules is not None

    @property
    def streams(self) -> bool:
        """Whether translations can be streamed, because with one row later tokens never replace earlier ones."""
        return self.job.beam_size == 1 and self.num_hypotheses == 1 and not self.alternatives

    @property
    def samples(self) -> int:
        """The number of jobs for each part of a text, without alternatives."""
        return self.num_hypotheses if self.job.sampling is not None else 1

    def jobs_of(self, part: int) -> int:
        """Return the number of jobs for a part of a text."""
        return self.alternatives if self.alternatives and part == 0 else self.samples

    def job_options(self, max_output_tokens: int, stream: int, part: int = 0, rank: int = 0) -> Options:
        """Return the options of one job.

        part: index of the part of the text
        stream: number of the random stream, if the job samples
        rank: rank of its first token after the prefix, if the first part has alternatives
        """
        job = self.job
        if self.rules is None:  # as without sampling and alternatives, which both need rules
            found = self._by_length.get(max_output_tokens)
            if found is None:
                found = self._by_length[max_output_tokens] = replace(job, max_output_tokens=max_output_tokens)
            return found
        return replace(
            job,
            max_output_tokens=max_output_tokens,
            sampling=job.sampling and replace(job.sampling, stream=stream),
            rules=self.rules.of_part(part),
            alternative=job.alternative and (job.alternative._replace(rank=rank) if part == 0 else None),
        )

    def rules_with(self, vocabulary: Vocabulary, forced: Sequence[str], forbidden: Sequence[str]) -> RequestRules:
        """Return the rules of the request and further words, which are normalised.

        Raises InvalidRequest for words that contradict each other, that the model cannot write, or that have more
        tokens than a translation, and Unsupported for a model of Moses tokens.
        """
        assert self.restrictions is not None
        own = self.restrictions
        more = replace(
            own, forced_words=[*own.forced_words, *forced], forbidden_words=[*own.forbidden_words, *forbidden]
        )
        return _rules(more, vocabulary, self.message)


def resolve(
    requested: pb.DecodingOptions,
    manifest: Manifest,
    vocabulary: Vocabulary | None,
    shortlist: bool | None = None,
    text: pb.TextOptions | None = None,
) -> ResolvedOptions:
    """Return the options to use. Raises InvalidRequest or Unsupported.

    vocabulary: the target pieces of the model; None if the request restricts no translations
    shortlist: the default for requests that do not set it, or None if the model has no shortlist
    text: the text options of the request
    """
    text = text or pb.TextOptions()
    sampling = _sampling(requested.sampling) if requested.HasField("sampling") else None
    beam_size, num_hypotheses = _beams(requested, manifest, samples=sampling is not None)
    penalty, max_output_tokens = _length_penalty(requested, manifest), _max_output_tokens(requested, manifest)
    if requested.return_alignment:
        check_alignment(manifest, "options.return_alignment")
    if requested.coverage_penalty:
        check_alignment(manifest, "options.coverage_penalty")
    restrictions = _restrictions(requested, max_output_tokens)
    ranking = _ranking(requested)
    chooses = restrictions.name or ranking.chooses
    if ranking.alternatives:
        num_hypotheses = 1  # for each alternative
    message = pb.DecodingOptions(
        beam_size=beam_size,
        num_hypotheses=num_hypotheses,
        length_penalty=penalty,
        max_output_tokens=max_output_tokens,
        sampling=_sampling_message(sampling),
        return_tokens=requested.return_tokens,
        return_alignment=requested.return_alignment,
        long_text=_long_text(requested.long_text),
        shortlist=_shortlist(requested, chooses, manifest, shortlist),
        **asdict(restrictions),
        **ranking._asdict(),
    )
    alternative = Alternative(0, ranking.min_alternative_probability) if ranking.alternatives else None
    choice = _text_choice(text, restrictions, message, chooses)
    ruled = sampling is not None or bool(chooses)
    return ResolvedOptions(
        job=Options(
            beam_size=beam_size,
            num_hypotheses=_searched(message, num_hypotheses),
            length_penalty=penalty,
            sampling=sampling,
            shortlist=message.shortlist,
            patience=ranking.patience,
            alternative=alternative,
            cut_loops=choice.guard != pb.GUARD_POLICY_OFF and not ruled,
        ),
        num_hypotheses=ranking.alternatives or num_hypotheses,
        max_output_tokens=message.max_output_tokens,
        return_tokens=requested.return_tokens,
        return_alignment=requested.return_alignment,
        splits=message.long_text == pb.LONG_TEXT_POLICY_SPLIT,
        message=message,
        text=choice,
        rules=_rules(restrictions, vocabulary, message) if ruled else None,
        coverage_penalty=ranking.coverage_penalty,
        prefix_bias=ranking.prefix_bias,
        alternatives=ranking.alternatives,
        restrictions=restrictions,
    )


class _Ranking(NamedTuple):
    """The checked options that select the hypotheses that a search compares; see `DecodingOptions`."""

    patience: float
    coverage_penalty: float
    prefix_bias: float
    alternatives: int
    min_alternative_probability: float

    @property
    def chooses(self) -> str:
        """The first of these options that may choose other than the likeliest tokens; empty without one."""
        return "prefix_bias" if self.prefix_bias < 1 else "alternatives" if self.alternatives else ""


def _ranking(requested: pb.DecodingOptions) -> _Ranking:
    found = _Ranking(
        patience=requested.patience if requested.HasField("patience") else 1.0,
        coverage_penalty=requested.coverage_penalty,
        prefix_bias=requested.prefix_bias if requested.HasField("prefix_bias") else 1.0,
        alternatives=requested.alternatives,
        min_alternative_probability=requested.min_alternative_probability,
    )
    _above_zero("patience", found.patience, MAX_PATIENCE)
    _within("coverage_penalty", found.coverage_penalty, 0.0, MAX_COVERAGE_PENALTY)
    _above_zero("prefix_bias", found.prefix_bias, 1.0)
    _within("alternatives", found.alternatives, 0, MAX_ALTERNATIVES)
    _within("min_alternative_probability", found.min_alternative_probability, 0.0, 1.0)
    if found.alternatives:
        conflicts = {
            "sampling": requested.HasField("sampling"),
            "coverage_penalty": found.coverage_penalty > 0,
            "prefix_bias": found.prefix_bias < 1,
            "num_hypotheses above 1": requested.num_hypotheses > 1,
        }
        if conflict := next((name for name, holds in conflicts.items() if holds), ""):
            raise _refusal("alternatives", f"must be unset or 0 with {conflict}, got {found.alternatives}")
    return found


def _searched(message: pb.DecodingOptions, num_hypotheses: int) -> int:
    """Return the hypotheses of one job. A coverage penalty ranks all hypotheses that a search ended with."""
    if message.HasField("sampling") or message.alternatives:
        return 1
    if message.coverage_penalty:
        return max(ended_hypotheses(message.beam_size, message.patience), num_hypotheses)
    return num_hypotheses


def _length_penalty(requested: pb.DecodingOptions, manifest: Manifest) -> float:
    """Return the length penalty, by default the model's."""
    given = requested.HasField("length_penalty")
    penalty = requested.length_penalty if given else manifest.defaults.length_penalty
    _within("length_penalty", penalty, 0.0, MAX_LENGTH_PENALTY)
    return penalty


def _max_output_tokens(requested: pb.DecodingOptions, manifest: Manifest) -> int:
    """Return the largest number of tokens of a translation, at most the model's."""
    most = manifest.limits.max_target_tokens
    if not requested.HasField("max_output_tokens"):
        return most
    _at_least("max_output_tokens", requested.max_output_tokens, 1)
    return min(requested.max_output_tokens, most)


def _text_choice(
    text: pb.TextOptions, restrictions: Restrictions, message: pb.DecodingOptions, chooses: str
) -> TextChoice:
    """Return how texts are read and judged; message: the used options; chooses: see `_shortlist`."""
    conflict = chooses or ("coverage_penalty" if message.coverage_penalty else "")
    conflict = conflict or ("num_hypotheses above 1" if message.num_hypotheses > 1 else "")
    conflict = "sampling" if message.HasField("sampling") else conflict
    return text_choice(
        text,
        forced=bool(restrictions.forced_words),
        forbidden=restrictions.forbidden_words,
        greedy=message.beam_size == 1,
        conflict=conflict,
    )


def check_alignment(manifest: Manifest, field: str) -> None:
    """Raise Unsupported if the model declares no attention heads for alignments."""
    if not manifest.alignment.heads:
        raise Unsupported(
            f"{field}: the model {manifest.name}/{manifest.version} declares no attention heads for alignments"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Restrictions:
    """The checked options that restrict the next tokens; see `DecodingOptions`."""

    min_output_tokens: int
    no_repeat_ngram_size: int
    repetition_penalty: float
    forbidden_words: list[str]
    forced_words: list[str]

    @property
    def name(self) -> str:
        """The first of these options with a restriction; empty without one."""
        values = {
            "min_output_tokens": self.min_output_tokens > 1,
            "no_repeat_ngram_size": self.no_repeat_ngram_size > 0,
            "repetition_penalty": self.repetition_penalty != 1,
            "forbidden_words": bool(self.forbidden_words),
            "forced_words": bool(self.forced_words),
        }
        return next((name for name, restricts in values.items() if restricts), "")


def _restrictions(requested: pb.DecodingOptions, max_output_tokens: int) -> Restrictions:
    penalty = requested.repetition_penalty if requested.HasField("repetition_penalty") else 1.0
    _within(
        "min_output_tokens", requested.min_output_tokens, 0, max_output_tokens, "which is options.max_output_tokens"
    )
    _within("no_repeat_ngram_size", requested.no_repeat_ngram_size, 0, MAX_NGRAM)
    _within("repetition_penalty", penalty, 1.0, MAX_REPETITION_PENALTY)
    return Restrictions(
        min_output_tokens=requested.min_output_tokens,
        no_repeat_ngram_size=requested.no_repeat_ngram_size,
        repetition_penalty=penalty,
        forbidden_words=checked_words(requested.forbidden_words, FORBIDDEN_WORDS, MAX_FORBIDDEN_WORDS),
        forced_words=checked_words(requested.forced_words, FORCED_WORDS, MAX_FORCED_WORDS),
    )


def _rules(restrictions: Restrictions, vocabulary: Vocabulary | None, message: pb.DecodingOptions) -> RequestRules:
    assert vocabulary is not None, "what restricts translations needs the pieces of the model"
    rules = vocabulary.rules(
        forbidden=restrictions.forbidden_words,
        forced=restrictions.forced_words,
        min_tokens=restrictions.min_output_tokens,
        no_repeat_ngram=restrictions.no_repeat_ngram_size,
        repetition_penalty=restrictions.repetition_penalty,
    )
    if rules.forced_tokens >= message.max_output_tokens:
        needed = f"come to {rules.forced_tokens} tokens, which max_output_tokens must exceed"
        raise _refusal("forced_words", f"{needed}; it is {message.max_output_tokens}")
    return rules


def _beams(requested: pb.DecodingOptions, manifest: Manifest, *, samples: bool) -> tuple[int, int]:
    """Return beam size and number of hypotheses."""
    limits, defaults = manifest.limits, manifest.defaults
    default_beam_size = 1 if samples else defaults.beam_size
    beam_size = requested.beam_size if requested.HasField("beam_size") else default_beam_size
    _within("beam_size", beam_size, 1, 1 if samples else limits.max_beam_size, "with sampling" if samples else "")
    most = limits.max_beam_size if samples else beam_size
    num_hypotheses = min(defaults.num_hypotheses, most)
    if requested.HasField("num_hypotheses"):
        num_hypotheses = requested.num_hypotheses
    _within("num_hypotheses", num_hypotheses, 1, most, "" if samples else "which is options.beam_size")
    return beam_size, num_hypotheses


def _shortlist(requested: pb.DecodingOptions, chooses: str, manifest: Manifest, default: bool | None) -> bool:
    """Return whether a shortlist is used; chooses: an option that needs all tokens, empty without one."""
    needs_all = "sampling" if requested.HasField("sampling") else chooses
    if not requested.HasField("shortlist"):
        return bool(default) and not needs_all
    if requested.shortlist and needs_all:
        raise _refusal("shortlist", f"must be unset or false with {needs_all}, got true")
    if requested.shortlist and default is None:
        raise Unsupported(
            f"options.shortlist: the model {manifest.name}/{manifest.version} is served without a shortlist"
        )
    return requested.shortlist


def _sampling(requested: pb.SamplingOptions) -> Sampling:
    temperature = requested.temperature if requested.HasField("temperature") else 1.0
    top_p = requested.top_p if requested.HasField("top_p") else 1.0
    _above_zero("sampling.temperature", temperature, MAX_TEMPERATURE)
    _above_zero("sampling.top_p", top_p, 1.0)
    return Sampling(temperature=temperature, top_k=requested.top_k, top_p=top_p, seed=requested.seed)


def _sampling_message(sampling: Sampling | None) -> pb.SamplingOptions | None:
    if sampling is None:
        return None
    return pb.SamplingOptions(
        temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p, seed=sampling.seed
    )


def _long_text(policy: pb.LongTextPolicy.ValueType) -> pb.LongTextPolicy.ValueType:
    if policy not in pb.LongTextPolicy.values():
        raise InvalidRequest("options.long_text", f"options.long_text has no value {policy}")
    split = policy == pb.LONG_TEXT_POLICY_SPLIT
    return pb.LONG_TEXT_POLICY_SPLIT if split else pb.LONG_TEXT_POLICY_REFUSE


def _within(name: str, value: float, least: float, most: float, why: str = "") -> None:
    if not (math.isfinite(value) and least <= value <= most):
        note = f" ({why})" if why else ""
        raise _refusal(name, f"must be {least:g} to {most:g}{note}, got {_shown(value)}")


def _above_zero(name: str, value: float, most: float) -> None:
    if not (math.isfinite(value) and 0.0 < value <= most):
        raise _refusal(name, f"must be above 0 and at most {most:g}, got {_shown(value)}")


def _shown(value: float) -> str:
    """Return a number as the caller wrote it: all digits of an integer, or those that a float of the message holds."""
    return str(value) if isinstance(value, int) else f"{value:.7g}"


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise _refusal(name, f"must be at least {least}, got {value}")


def _refusal(name: str, rest: str) -> InvalidRequest:
    return InvalidRequest(f"options.{name}", f"options.{name} {rest}")
