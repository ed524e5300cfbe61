"""Checks the arguments of calls and writes their protobuf messages: pure functions that all clients share."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TypeVar

from lingon.client.values.attention import AttentionSelection
from lingon.client.values.options import (
    DEFAULT_LONG_TEXT,
    FORMATS,
    GUARDS,
    LONG_TEXT,
    SPLIT_SENTENCES,
    Sampling,
    ScoreOptions,
    TranslateOptions,
)
from lingon.errors import SettingsError
from lingon.translation.v1 import translation_pb2 as pb

MAX_BYTES = 2**21  # bytes of text in one request: half of the largest message that a gRPC server takes by default

OPTION_OF = {"source_language_code": "source", "target_language_code": "target", "target_prefixes": "target_prefix"}
"""The options whose fields in the request have another name."""

Item = TypeVar("Item", bound=str | tuple[str, str])
Request = TypeVar("Request", pb.TranslateRequest, pb.TranslateStreamRequest)
Written = TypeVar("Written")

LISTS = (
    "target_prefix",
    "ignore_tags",
    "splitting_tags",
    "non_splitting_tags",
    "translate_attributes",
    "keep",
    "forbidden_words",
    "forced_words",
)
"""The options that are, or may be, several strings."""


def check_options(options: TranslateOptions | ScoreOptions, known: type) -> None:
    """Raise TypeError for an unknown option, as Python does for an argument."""
    for name in options:
        if name not in known.__annotations__:
            raise TypeError(f"unknown option {name!r}; the options are {', '.join(known.__annotations__)}")


def keep_lists(options: TranslateOptions) -> None:
    """Replace the iterators among the options by lists of what they yield."""
    for name in LISTS:
        given = options.get(name)
        if isinstance(given, Iterator):
            options[name] = list(given)  # type: ignore[literal-required]


def texts_of(texts: str | Sequence[str]) -> list[str]:
    """One text or several as a list. Raises SettingsError for anything else."""
    return [texts] if isinstance(texts, str) else _strings("texts", texts)


def _strings(name: str, values: Iterable[Any]) -> list[str]:
    """Return several strings as a list; name: of the argument, for the error."""
    several = _listed(values, f"{name} must be a str or a list of them")
    for place, value in enumerate(several):
        if not isinstance(value, str):
            raise SettingsError(f"{name}[{place}] must be a str, got {type(value).__name__}")
    return several


def pairs_of(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(source, target) pairs as a list. Raises SettingsError for anything else."""
    several = _listed(pairs, "pairs must be a list of (source, target)")
    for place, pair in enumerate(several):
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise SettingsError(f"pairs[{place}] must be two str, source and target")
    return several


def _listed(values: Iterable[Any], wanted: str) -> list[Any]:
    if not isinstance(values, bytes):  # whose items are numbers
        with suppress(TypeError):
            return list(values)
    raise SettingsError(f"{wanted}, got {type(values).__name__}")


def prefixes_of(texts: Sequence[str], options: TranslateOptions) -> list[str]:
    """The target prefix of each text; an empty list if there is no prefix."""
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
    """A request for the translations of texts.

    start: index of the first of these texts in the caller's list; it is added to the seed, so that a later request
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
    )


def _text_options(options: TranslateOptions) -> pb.TextOptions | None:
    """The options of texts; None if all have their defaults."""
    message = write_request(
        pb.TextOptions,
        format=_named(options, "format", FORMATS),
        guard=_named(options, "guard", GUARDS),
        split_sentences=_named(options, "split_sentences", SPLIT_SENTENCES),
        ignore_tags=_words(options, "ignore_tags"),
        splitting_tags=_words(options, "splitting_tags"),
        non_splitting_tags=_words(options, "non_splitting_tags"),
        translate_attributes=_words(options, "translate_attributes"),
        keep=_words(options, "keep"),
        protect=options.get("protect"),
        return_sentences=options.get("return_sentences") or None,
        lower_capitals=options.get("lower_capitals"),
        localise_numbers=options.get("localise_numbers") or None,
    )
    return message if message.ListFields() else None


def _named(options: TranslateOptions | ScoreOptions, name: str, values: Mapping[str, int]) -> Any:
    """The value of an option that is one of several names; None without the option."""
    given: Any = options.get(name)
    if given is not None and given not in values:
        raise SettingsError(f"{name} must be one of {', '.join(values)}, got {given!r}")
    return None if given is None else values[given]


def _decoding_options(options: TranslateOptions, start: int) -> pb.DecodingOptions:
    long_text = options.get("long_text") or DEFAULT_LONG_TEXT
    if long_text not in LONG_TEXT:
        raise SettingsError(f"long_text must be one of {', '.join(LONG_TEXT)}, got {long_text!r}")
    sampling = options.get("sampling")
    return write_request(
        pb.DecodingOptions,
        beam_size=options.get("beam_size"),
        num_hypotheses=options.get("num_hypotheses"),
        length_penalty=options.get("length_penalty"),
        max_output_tokens=options.get("max_output_tokens"),
        sampling=None if sampling is None else _sampling_options(sampling, start),
        return_tokens=options.get("return_tokens") or False,
        return_alignment=options.get("return_alignment") or False,
        long_text=LONG_TEXT[long_text],
        shortlist=options.get("shortlist"),
        min_output_tokens=options.get("min_output_tokens"),
        no_repeat_ngram_size=options.get("no_repeat_ngram_size"),
        repetition_penalty=options.get("repetition_penalty"),
        forbidden_words=_words(options, "forbidden_words"),
        forced_words=_words(options, "forced_words"),
        patience=options.get("patience"),
        coverage_penalty=options.get("coverage_penalty"),
        prefix_bias=options.get("prefix_bias"),
        alternatives=options.get("alternatives"),
        min_alternative_probability=options.get("min_alternative_probability"),
    )


def _words(options: TranslateOptions, name: str) -> list[str]:
    words: Any = options.get(name)
    if words is None:
        return []
    if isinstance(words, str):  # it would be sent as a list of its letters
        raise SettingsError(f"{name} must be a list of str, got a str")
    return _listed(words, f"{name} must be a list of str")


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
    """A request for the scores of (source, target) pairs."""
    selection = options.get("attention")
    if selection is not None:
        _check_type("attention", selection, AttentionSelection)
    return write_request(
        pb.ScoreRequest,
        pairs=[write_request(pb.ScorePair, source=source, target=target) for source, target in pairs],
        model=options.get("model") or "",
        source_language_code=options.get("source") or "",
        target_language_code=options.get("target") or "",
        return_alignment=options.get("return_alignment") or False,
        attention=None if selection is None else write_request(pb.AttentionSelection, **selection.fields()),
        format=_named(options, "format", {name: FORMATS[name] for name in ("plain", "pieces")}),
    )


def write_request(kind: Callable[..., Written], **values: Any) -> Written:
    """A message with these fields.

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
    """The fields that a message of this kind cannot hold, and why: protobuf's errors do not name them."""
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
    for place, item in enumerate(items):
        texts = [*([item] if isinstance(item, str) else item), *prefixes[place : place + 1]]
        length = sum(len(text.encode(errors="replace")) for text in texts)
        if place > begin and (place - begin == most or size + length > MAX_BYTES):
            parts.append((begin, items[begin:place]))
            begin, size = place, 0
        size += length
    return [*parts, (begin, items[begin:])] if items else []
