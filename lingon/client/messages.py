"""The messages of calls: written from the arguments, which are checked, and read as the values of the clients."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any, TypeVar

from google.rpc import code_pb2, status_pb2

from lingon.client.options import (
    DEFAULT_LONG_TEXT,
    FORMATS,
    GUARDS,
    LONG_TEXT,
    POLICIES,
    SPLIT_SENTENCES,
    AttentionSelection,
    LiveOptions,
    MemoryOptions,
    Sampling,
    ScoreOptions,
    SecondOptions,
    TranslateOptions,
    read_matrices,
    read_pieces,
)
from lingon.client.results import (
    Link,
    MemoryMatch,
    ModelInfo,
    ScoreResult,
    SecondOutcome,
    Sentence,
    StreamEvent,
    StreamStart,
    TermOutcome,
    TextDelta,
    TextDone,
    TextResult,
    TextWarning,
    Token,
    Translation,
)
from lingon.errors import RequestTooLarge, ServerError, SettingsError
from lingon.source_language import AUTO
from lingon.status import server_error
from lingon.terms.term_list import MOST_IN_REQUEST, TermList
from lingon.translation.v1 import translation_pb2 as pb

MOST_NAMES = 256  # names of enum values that are kept; a server of a later version may have others
MAX_BYTES = 2**21  # bytes of text in one request: half of the largest message that a gRPC server takes by default

OPTION_OF = {"source_language_code": "source", "target_language_code": "target", "target_prefixes": "target_prefix"}
"""The options whose fields in the request have another name."""

Item = TypeVar("Item", bound=str | tuple[str, str])
Request = TypeVar("Request", pb.TranslateRequest, pb.TranslateStreamRequest)
Written = TypeVar("Written")

LISTS = frozenset(
    (
        "glossaries",
        "target_prefix",
        "ignore_tags",
        "splitting_tags",
        "non_splitting_tags",
        "translate_attributes",
        "keep",
        "forbidden_words",
        "forced_words",
    )
)
"""The options that are, or may be, several strings."""


def check_options(options: Mapping[str, object], known: type) -> None:
    """Raise TypeError for an unknown option, as Python does for an argument."""
    for name in options:
        if name not in known.__annotations__:
            raise TypeError(f"unknown option {name!r}; the options are {', '.join(known.__annotations__)}")


def keep_lists(options: TranslateOptions) -> None:
    """Replace the iterators among the options by lists of what they yield, and terms by a list that is checked."""
    if (terms := options.get("terms")) is not None:
        options["terms"] = TermList.of(terms)
    for name in LISTS.intersection(options):
        given = options[name]  # type: ignore[literal-required]
        if isinstance(given, Iterator):
            options[name] = list(given)  # type: ignore[literal-required]


def texts_of(texts: str | Sequence[str]) -> list[str]:
    """Return one text or several as a list. Raises SettingsError for anything else."""
    return [texts] if isinstance(texts, str) else _strings("texts", texts)


def _strings(name: str, values: Iterable[Any]) -> list[str]:
    """Return several strings as a list; name: of the argument, for the error."""
    several = listed(values, f"{name} must be a str or a list of them")
    for position, value in enumerate(several):
        if not isinstance(value, str):
            raise SettingsError(f"{name}[{position}] must be a str, got {type(value).__name__}")
    return several


def pairs_of(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(source, target) pairs as a list. Raises SettingsError for anything else."""
    several = listed(pairs, "pairs must be a list of (source, target)")
    for position, pair in enumerate(several):
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise SettingsError(f"pairs[{position}] must be two str, source and target")
    return several


def listed(values: Iterable[Any], wanted: str) -> list[Any]:
    """Return several values as a list. Raises SettingsError, which says what is wanted, for what is not several."""
    if not isinstance(values, bytes):  # whose items are numbers
        with suppress(TypeError):
            return list(values)
    raise SettingsError(f"{wanted}, got {type(values).__name__}")


def prefixes_of(texts: Sequence[str], options: TranslateOptions) -> list[str]:
    """Return the target prefix of each text; an empty list if there is no prefix."""
    prefix = options.get("target_prefix")
    if prefix is None:
        return []
    prefixes = [prefix] * len(texts) if isinstance(prefix, str) else _strings("target_prefix", prefix)
    if len(prefixes) != len(texts):
        raise SettingsError(f"target_prefix: {len(prefixes)} prefixes for {len(texts)} texts")
    return prefixes


def translate_request(
    kind: type[Request], texts: Sequence[str], prefixes: Sequence[str], options: TranslateOptions, start: int = 0
) -> Request:
    """Return a request for the translations of texts.

    start: index of the first of these texts in the caller's list. It is added to the seed, so that a later request
        of the list does not draw the random numbers of the first
    """
    return write_request(
        kind,
        texts=texts,
        model=options.get("model") or "",
        source_language_code=options.get("source") or "",
        target_language_code=options.get("target") or "",
        options=_decoding_options(options, start),
        target_prefixes=prefixes,
        text=_text_options(options),
        terms=_terms(texts, options),
        **_fields(options, _REQUEST_FIELDS),
    )


def _terms(texts: Sequence[str], options: TranslateOptions) -> list[pb.Term]:
    """Return the terms of a request for these texts. Raises ServerError as for a request that is too large."""
    terms = options.get("terms")
    if terms is None:
        return []
    source, markup = options.get("source") or "", options.get("format") in ("html", "xml")
    found = TermList.of(terms).for_texts(texts, "" if source == AUTO else source, markup=markup)
    if len(found) > MOST_IN_REQUEST:
        message = f"terms: the texts have {len(found)} of them, and a request {MOST_IN_REQUEST} at most; split the text"
        raise ServerError(message, code_pb2.INVALID_ARGUMENT, reason=RequestTooLarge.reason)
    return [term.message() for term in found]


def _text_options(options: TranslateOptions) -> pb.TextOptions | None:
    """Return the options of texts, or None if all have their defaults."""
    fields = _fields(options, _TEXT_FIELDS)
    if not fields:
        return None
    message = write_request(pb.TextOptions, **fields)
    return message if message.ListFields() else None


_Reader = Callable[[str, Any], Any]
"""Returns the value of a field for the name and the value of its option. Raises SettingsError."""


def _fields(options: TranslateOptions, readers: Mapping[str, _Reader]) -> dict[str, Any]:
    """Return the fields of a message for the options that are given: a call gives one or two of about forty."""
    return {
        name: readers[name](name, given) for name, given in options.items() if given is not None and name in readers
    }


def _named(values: Mapping[str, int], name: str, given: Any) -> int:
    """Return the value of an option that is one of several names."""
    if given not in values:
        raise SettingsError(f"{name} must be one of {', '.join(values)}, got {given!r}")
    return values[given]


def _decoding_options(options: TranslateOptions, start: int) -> pb.DecodingOptions:
    long_text = options.get("long_text") or DEFAULT_LONG_TEXT
    if long_text not in LONG_TEXT:
        raise SettingsError(f"long_text must be one of {', '.join(LONG_TEXT)}, got {long_text!r}")
    fields = _fields(options, _DECODING_FIELDS)
    if (sampling := options.get("sampling")) is not None:
        fields["sampling"] = _sampling_options(sampling, start)
    return write_request(pb.DecodingOptions, long_text=LONG_TEXT[long_text], **fields)


def _as_given(name: str, given: Any) -> Any:
    return given


def _if_true(name: str, given: Any) -> Any:
    """Return the value of an option whose default is False."""
    return given or None


def _words(name: str, given: Any) -> list[str]:
    if isinstance(given, str):  # it would be sent as a list of its letters
        raise SettingsError(f"{name} must be a list of str, got a str")
    return listed(given, f"{name} must be a list of str")


def _memory(name: str, given: Any) -> pb.MemoryOptions:
    _check_type(name, given, MemoryOptions)
    return write_request(pb.MemoryOptions, **given.fields())


def _second(name: str, given: Any) -> pb.SecondOptions:
    _check_type(name, given, SecondOptions)
    return write_request(pb.SecondOptions, **given.fields())


_REQUEST_FIELDS: dict[str, _Reader] = {"glossaries": _words, "memory": _memory, "second": _second}
_TEXT_FIELDS: dict[str, _Reader] = {
    "format": partial(_named, FORMATS),
    "guard": partial(_named, GUARDS),
    "split_sentences": partial(_named, SPLIT_SENTENCES),
    "ignore_tags": _words,
    "splitting_tags": _words,
    "non_splitting_tags": _words,
    "translate_attributes": _words,
    "keep": _words,
    "protect": _as_given,
    "return_sentences": _if_true,
    "lower_capitals": _as_given,
    "localise_numbers": _if_true,
}
_DECODING_FIELDS: dict[str, _Reader] = {
    "beam_size": _as_given,
    "num_hypotheses": _as_given,
    "length_penalty": _as_given,
    "max_output_tokens": _as_given,
    "return_tokens": _if_true,
    "return_alignment": _if_true,
    "shortlist": _as_given,
    "min_output_tokens": _as_given,
    "no_repeat_ngram_size": _as_given,
    "repetition_penalty": _as_given,
    "forbidden_words": _words,
    "forced_words": _words,
    "patience": _as_given,
    "coverage_penalty": _as_given,
    "prefix_bias": _as_given,
    "alternatives": _as_given,
    "min_alternative_probability": _as_given,
}


def _check_type(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise SettingsError(f"{name} must be a lingon.{kind.__name__}, got {type(value).__name__}")


def _sampling_options(sampling: Sampling, start: int) -> pb.SamplingOptions:
    _check_type("sampling", sampling, Sampling)
    values: dict[str, Any] = asdict(sampling)
    if start:
        values["seed"] = ((sampling.seed or 0) + start) % 2**64
    return write_request(pb.SamplingOptions, **values)


def score_request(pairs: Sequence[tuple[str, str]], options: ScoreOptions) -> pb.ScoreRequest:
    """Return a request for the scores of (source, target) pairs."""
    selection, written = options.get("attention"), options.get("format")
    if selection is not None:
        _check_type("attention", selection, AttentionSelection)
    formats = {name: FORMATS[name] for name in ("plain", "pieces")}
    return write_request(
        pb.ScoreRequest,
        pairs=[write_request(pb.ScorePair, source=source, target=target) for source, target in pairs],
        model=options.get("model") or "",
        source_language_code=options.get("source") or "",
        target_language_code=options.get("target") or "",
        return_alignment=options.get("return_alignment") or False,
        attention=None if selection is None else write_request(pb.AttentionSelection, **selection.fields()),
        format=None if written is None else _named(formats, "format", written),
    )


def live_start(options: LiveOptions) -> pb.TranslateLiveRequest:
    """Return the first message of a speaker."""
    policy, source = options.get("policy"), options.get("source") or ""
    if source == AUTO:
        raise SettingsError(f'source must be a language for live translation, got "{AUTO}"')
    terms = options.get("terms")
    found = [] if terms is None else list(TermList.of(terms))
    if len(found) > MOST_IN_REQUEST:
        raise SettingsError(
            f"terms must be {MOST_IN_REQUEST} at most for live translation, got {len(found)}; a glossary may have more"
        )
    start = write_request(
        pb.LiveStart,
        model=options.get("model") or "",
        source_language_code=source,
        target_language_code=options.get("target") or "",
        policy=None if policy is None else _named(POLICIES, "policy", policy),
        lag_words=options.get("lag_words") or 0,
        pause_ms=options.get("pause_ms") or 0,
        agreed_only=options.get("agreed_only") or False,
        terms=[term.message() for term in found],
        glossaries=_words("glossaries", options.get("glossaries") or ()),
    )
    return pb.TranslateLiveRequest(start=start)


def write_request(kind: Callable[..., Written], **values: Any) -> Written:
    """Return a message with these fields.

    Raises SettingsError, which names the field, for a value that protobuf cannot hold, such as a negative count or a
    lone surrogate.
    """
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        name, problem = next(_unwritable(kind, values), ("", error))
        shown = f"{OPTION_OF.get(name, name)} = {reprlib.repr(values[name])} " if name else ""
        raise SettingsError(f"{shown}cannot be written into a request: {problem}") from None


def _unwritable(kind: Callable[..., Any], values: Mapping[str, Any]) -> Iterator[tuple[str, Exception]]:
    """Yield the fields that a message of this kind cannot hold, and why: protobuf's errors do not name them."""
    for name, value in values.items():
        try:
            kind(**{name: value})
        except (ValueError, TypeError) as error:
            yield name, error


def cut(items: Sequence[Item], most: int, prefixes: Sequence[str] = ()) -> list[tuple[int, Sequence[Item]]]:
    """Cut items into parts of at most `most` items and MAX_BYTES (but at least one item); each part with its index.

    prefixes: the prefix that is sent with each item, or an empty list
    """
    parts: list[tuple[int, Sequence[Item]]] = []
    begin = size = 0
    for position, item in enumerate(items):
        texts = [*([item] if isinstance(item, str) else item), *prefixes[position : position + 1]]
        length = sum(len(text.encode(errors="replace")) for text in texts)
        if position > begin and (position - begin == most or size + length > MAX_BYTES):
            parts.append((begin, items[begin:position]))
            begin, size = position, 0
        size += length
    return [*parts, (begin, items[begin:])] if items else []


def text_results(response: pb.TranslateResponse, source: str = "") -> list[TextResult]:
    """Return the results of a reply, in order; source: the language of the texts, if the reply does not say it."""
    known = response.model, response.version, response.source_language_code or source
    return [_text_result(result, *known) for result in response.results]


def score_results(response: pb.ScoreResponse) -> list[ScoreResult]:
    """Return the scores of a reply, in order."""
    return [_score_result(result, response.model, response.version) for result in response.results]


def stream_event(
    message: pb.TranslateStreamResponse, start: StreamStart | None, positions: Sequence[int]
) -> StreamEvent:
    """Return the event of a message.

    start: the first event of the stream, or None if this message is the first
    positions: indices of the stream's texts in the caller's list
    """
    match message.WhichOneof("event"):
        case "start":
            begun = message.start
            return StreamStart(begun.model, begun.version, begun.source_language_code, begun.target_language_code)
        case "delta":
            return TextDelta(_place(positions, message.delta.text_index), message.delta.text)
        case "done":
            source = (start.model, start.version, start.source_language) if start else ("", "", "")
            return TextDone(_place(positions, message.done.text_index), _text_result(message.done.result, *source))
        case unknown:
            raise ServerError(f"the stream has an event that this client does not know: {unknown}", code_pb2.INTERNAL)


def _place(positions: Sequence[int], index: int) -> int:
    if index >= len(positions):
        raise ServerError(f"the stream has an event of text {index}, and {len(positions)} texts", code_pb2.INTERNAL)
    return positions[index]


def model_infos(response: pb.ListModelsResponse) -> list[ModelInfo]:
    """Return the models of a reply."""
    return [
        ModelInfo(
            name=model.name,
            version=model.version,
            source_language=model.source_language_code,
            target_language=model.target_language_code,
            precision=model.precision,
            provider=model.provider,
            max_source_tokens=model.max_source_tokens,
            output_factor=model.output_factor,
            output_extra=model.output_extra,
            max_beam_size=model.max_beam_size,
            beam_size=model.default_options.beam_size,
            num_hypotheses=model.default_options.num_hypotheses,
            length_penalty=model.default_options.length_penalty,
            has_shortlist=model.has_shortlist,
            shortlist=model.default_options.shortlist,
            has_confidence=model.has_confidence,
            source_languages=tuple(model.source_language_codes),
            target_languages=tuple(model.target_language_codes),
            loaded=model.loaded,
        )
        for model in response.models
    ]


def _text_result(message: pb.TextResult, model: str, version: str, source: str) -> TextResult:
    return TextResult(
        translations=tuple(map(_translation, message.hypotheses)),
        error=_text_error(message.status),
        warnings=_warnings(message.warnings),
        source_tokens=message.usage.source_tokens,
        target_tokens=message.usage.target_tokens,
        model=model,
        version=version,
        shortlist=message.shortlist,
        normalised_text=message.normalised_text,
        sentences=tuple(map(_sentence, message.sentences)),
        confidence=message.confidence if message.HasField("confidence") else None,
        source=source,
        terms=tuple(map(_term_outcome, message.terms)),
        matches=tuple(map(memory_match, message.matches)),
    )


def _sentence(message: pb.Sentence) -> Sentence:
    return Sentence(
        (message.source.begin, message.source.end),
        (message.target.begin, message.target.end),
        message.score,
        message.confidence if message.HasField("confidence") else None,
        tuple(_enum_name(pb.WarningCode, code, "WARNING_CODE_") for code in message.warnings),
        _second_outcome(message.second) if message.HasField("second") else None,
    )


def _second_outcome(message: pb.SecondOutcome) -> SecondOutcome:
    return SecondOutcome(
        _enum_name(pb.SecondReason, message.reason, "SECOND_REASON_"),
        _enum_name(pb.SecondResult, message.result, "SECOND_RESULT_"),
        message.model,
        message.detail,
    )


def _term_outcome(message: pb.TermOutcome) -> TermOutcome:
    return TermOutcome(
        message.source,
        message.target,
        message.glossary,
        (message.source_span.begin, message.source_span.end),
        (message.target_span.begin, message.target_span.end) if message.HasField("target_span") else None,
        _enum_name(pb.TermMeans, message.means, "TERM_MEANS_"),
    )


def memory_match(message: pb.MemoryMatch) -> MemoryMatch:
    """Return the match of a message."""
    return MemoryMatch(
        message.memory,
        message.source,
        message.target,
        message.score,
        (message.source_span.begin, message.source_span.end),
        message.used,
        message.origin,
    )


def _warnings(messages: Iterable[pb.Warning]) -> tuple[TextWarning, ...]:
    return tuple(TextWarning(_enum_name(pb.WarningCode, each.code, "WARNING_CODE_"), each.message) for each in messages)


def _translation(message: pb.Hypothesis) -> Translation:
    reason = _enum_name(pb.FinishReason, message.finish_reason, "FINISH_REASON_")
    tokens, alignment = _tokens(message.tokens), _links(message.alignment)
    return Translation(message.text, message.score, reason, tokens, alignment, tuple(message.missing_words))


def _score_result(message: pb.ScoreResult, model: str, version: str) -> ScoreResult:
    error = _text_error(message.status)
    return ScoreResult(
        message.log_prob,
        _tokens(message.tokens),
        _links(message.alignment),
        error,
        model=model,
        version=version,
        normalised_source=message.normalised_source,
        normalised_target=message.normalised_target,
        attention=read_matrices(message.attention),
        source_pieces=read_pieces(message.source_pieces),
        target_pieces=read_pieces(message.target_pieces),
        warnings=_warnings(message.warnings),
    )


def _tokens(messages: Iterable[pb.Token]) -> tuple[Token, ...]:
    return tuple(Token(token.piece, token.log_prob) for token in messages)


def _links(messages: Iterable[pb.AlignmentLink]) -> tuple[Link, ...]:
    return tuple(
        Link((link.source.begin, link.source.end), (link.target.begin, link.target.end), link.weight)
        for link in messages
    )


@lru_cache(maxsize=128)  # a look-up lists all values of the enum
@lru_cache(MOST_NAMES)
def _enum_name(enum: Any, value: int, prefix: str) -> str:
    """Return the name of an enum value without prefix: FINISH_REASON_END is "end". An unknown value is its number."""
    return str(enum.Name(value)).removeprefix(prefix).lower() if value in enum.values() else str(value)


def _text_error(status: status_pb2.Status) -> ServerError | None:
    return server_error(status) if status.code else None
