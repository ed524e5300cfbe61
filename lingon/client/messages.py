"""Between Python values and the messages of the wire: pure functions, the same for every kind of client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict, TypeVar

from google.rpc import code_pb2, status_pb2

from lingon.client.results import (
    Link,
    ModelInfo,
    ScoreResult,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextDone,
    TextResult,
    TextWarning,
    Token,
    Translation,
)
from lingon.errors import ServerError, SettingsError
from lingon.status import server_error
from lingon.translation.v1 import translation_pb2 as pb

MAX_BYTES = 2**21
"""Of text in one request: half of what a gRPC server takes by default."""

LONG_TEXT = {"refuse": pb.LONG_TEXT_POLICY_REFUSE, "split": pb.LONG_TEXT_POLICY_SPLIT}

Item = TypeVar("Item", bound=str | tuple[str, str])
Request = TypeVar("Request", pb.TranslateRequest, pb.TranslateStreamRequest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Tokens are drawn at random rather than chosen; what is None has the default of the server.

    temperature: divides the logits, above 0
    top_k: only so many of the likeliest tokens are drawn from; 0 is all
    top_p: only the smallest set of likeliest tokens that holds this probability
    seed: the same seed draws the same translation of the same text at the same place
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None


class TranslateOptions(TypedDict, total=False):
    """How texts are translated; what is left out or None has the default of the model."""

    model: str | None  # "name" or "name/version"; needed where several are served and the languages do not tell
    source: str | None  # language of the texts, BCP-47
    target: str | None  # language of the translations
    beam_size: int | None  # 1 is greedy
    num_hypotheses: int | None  # translations of each text; at most beam_size
    length_penalty: float | None  # score = log-probability / length ** length_penalty
    max_output_tokens: int | None
    sampling: Sampling | None
    target_prefix: str | Sequence[str] | None  # how every translation begins, or one prefix for each text
    return_tokens: bool | None
    return_alignment: bool | None
    long_text: Literal["refuse", "split"] | None
    shortlist: bool | None  # choose among the pieces that the source calls for, which is faster
    timeout: float | None  # seconds for each request to the server, retries included


class ScoreOptions(TypedDict, total=False):
    """How pairs are scored."""

    model: str | None
    source: str | None
    target: str | None
    return_alignment: bool | None
    timeout: float | None


def check_options(options: TranslateOptions | ScoreOptions, known: type) -> None:
    """Raises TypeError for an option that there is not, as Python does for an argument."""
    for name in options:
        if name not in known.__annotations__:
            raise TypeError(f"no option {name!r}; there are {', '.join(known.__annotations__)}")


def texts_of(texts: str | Sequence[str]) -> list[str]:
    """One text or several as a list. Raises SettingsError where it is anything else."""
    several = [texts] if isinstance(texts, str) else _listed(texts, "texts must be a str or a list of them")
    for place, text in enumerate(several):
        if not isinstance(text, str):
            raise SettingsError(f"texts[{place}] must be a str, got {type(text).__name__}")
    return several


def pairs_of(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(source, target) pairs as a list. Raises SettingsError where they are anything else."""
    several = _listed(pairs, "pairs must be a list of (source, target)")
    for place, pair in enumerate(several):
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise SettingsError(f"pairs[{place}] must be two str, source and target")
    return several


def _listed(values: Iterable[Any], wanted: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise SettingsError(f"{wanted}, got {type(values).__name__}") from None


def prefixes_of(texts: Sequence[str], options: TranslateOptions) -> list[str]:
    """The target prefix of each text, or none at all."""
    prefix = options.get("target_prefix")
    if prefix is None:
        return []
    prefixes = [prefix] * len(texts) if isinstance(prefix, str) else list(prefix)
    if len(prefixes) != len(texts):
        raise SettingsError(f"target_prefix: {len(prefixes)} prefixes for {len(texts)} texts")
    return prefixes


def translate_request(
    kind: type[Request], texts: Sequence[str], prefixes: Sequence[str], options: TranslateOptions, start: int = 0
) -> Request:
    """A request for texts.

    start: place of the first of texts in all that the caller has; the seed grows by it, so that a later request
        does not draw the random numbers of the first again
    """
    with in_bounds():
        return kind(
            texts=texts,
            model=options.get("model") or "",
            source_language_code=options.get("source") or "",
            target_language_code=options.get("target") or "",
            options=_decoding_options(options, start),
            target_prefixes=prefixes,
        )


def _decoding_options(options: TranslateOptions, start: int) -> pb.DecodingOptions:
    long_text = options.get("long_text") or "refuse"
    if long_text not in LONG_TEXT:
        raise SettingsError(f"long_text must be one of {', '.join(LONG_TEXT)}, got {long_text!r}")
    sampling = options.get("sampling")
    return pb.DecodingOptions(
        beam_size=options.get("beam_size"),
        num_hypotheses=options.get("num_hypotheses"),
        length_penalty=options.get("length_penalty"),
        max_output_tokens=options.get("max_output_tokens"),
        sampling=None if sampling is None else _sampling_options(sampling, start),
        return_tokens=options.get("return_tokens") or False,
        return_alignment=options.get("return_alignment") or False,
        long_text=LONG_TEXT[long_text],
        shortlist=options.get("shortlist"),
    )


def _sampling_options(sampling: Sampling, start: int) -> pb.SamplingOptions:
    values: dict[str, Any] = asdict(sampling)
    if start:
        values["seed"] = ((sampling.seed or 0) + start) % 2**64
    return pb.SamplingOptions(**values)


def score_request(pairs: Sequence[tuple[str, str]], options: ScoreOptions) -> pb.ScoreRequest:
    """A request for the scores of (source, target) pairs."""
    with in_bounds():
        return pb.ScoreRequest(
            pairs=[pb.ScorePair(source=source, target=target) for source, target in pairs],
            model=options.get("model") or "",
            source_language_code=options.get("source") or "",
            target_language_code=options.get("target") or "",
            return_alignment=options.get("return_alignment") or False,
        )


@contextmanager
def in_bounds() -> Iterator[None]:
    """What protobuf cannot hold (a negative count, a lone surrogate) is a setting out of bounds, said in one line."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise SettingsError(f"the request cannot be written: {error}") from None


def cut(items: Sequence[Item], most: int, prefixes: Sequence[str] = ()) -> list[tuple[int, Sequence[Item]]]:
    """Parts of at most `most` items and MAX_BYTES each (but at least one item), each with its place, in order.

    prefixes: what is sent beside each item, or nothing
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


def text_results(response: pb.TranslateResponse) -> list[TextResult]:
    """The results of a reply, in order."""
    return [_text_result(result, response.model, response.version) for result in response.results]


def score_results(response: pb.ScoreResponse) -> list[ScoreResult]:
    """The scores of a reply, in order."""
    return [_score_result(result, response.model, response.version) for result in response.results]


def stream_event(message: pb.TranslateStreamResponse, start: StreamStart | None, place: int) -> StreamEvent:
    """The event of a message.

    start: the event that began the stream; None where this message is to be it
    place: of the stream's first text in all that the caller has
    """
    match message.WhichOneof("event"):
        case "start":
            begun = message.start
            return StreamStart(begun.model, begun.version, begun.source_language_code, begun.target_language_code)
        case "delta":
            return TextDelta(place + message.delta.text_index, message.delta.text)
        case "done":
            model, version = (start.model, start.version) if start else ("", "")
            return TextDone(place + message.done.text_index, _text_result(message.done.result, model, version))
        case unknown:
            raise ServerError(f"the stream has an event that this client does not know: {unknown}", code_pb2.INTERNAL)


def model_infos(response: pb.ListModelsResponse) -> list[ModelInfo]:
    """The models of a reply."""
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
        )
        for model in response.models
    ]


def _text_result(message: pb.TextResult, model: str, version: str) -> TextResult:
    return TextResult(
        translations=tuple(_translation(hypothesis) for hypothesis in message.hypotheses),
        error=_text_error(message.status),
        warnings=tuple(
            TextWarning(_short(pb.WarningCode, warning.code, "WARNING_CODE_"), warning.message)
            for warning in message.warnings
        ),
        source_tokens=message.usage.source_tokens,
        target_tokens=message.usage.target_tokens,
        model=model,
        version=version,
        shortlist=message.shortlist,
    )


def _translation(message: pb.Hypothesis) -> Translation:
    reason = _short(pb.FinishReason, message.finish_reason, "FINISH_REASON_")
    return Translation(message.text, message.score, reason, _tokens(message.tokens), _links(message.alignment))


def _score_result(message: pb.ScoreResult, model: str, version: str) -> ScoreResult:
    error = _text_error(message.status)
    return ScoreResult(
        message.log_prob, _tokens(message.tokens), _links(message.alignment), error, model=model, version=version
    )


def _tokens(messages: Iterable[pb.Token]) -> tuple[Token, ...]:
    return tuple(Token(token.piece, token.log_prob) for token in messages)


def _links(messages: Iterable[pb.AlignmentLink]) -> tuple[Link, ...]:
    return tuple(
        Link((link.source.begin, link.source.end), (link.target.begin, link.target.end), link.weight)
        for link in messages
    )


def _short(enum: Any, value: int, prefix: str) -> str:
    """The name of an enum's value without its prefix: FINISH_REASON_END is "end"; a number that is new is itself."""
    return str(enum.Name(value)).removeprefix(prefix).lower() if value in enum.values() else str(value)


def _text_error(status: status_pb2.Status) -> ServerError | None:
    return server_error(status) if status.code else None
