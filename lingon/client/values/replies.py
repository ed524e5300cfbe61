"""Reads the values of the clients from protobuf messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.rpc import code_pb2, status_pb2

from lingon.client.values.attention import read_matrices, read_pieces
from lingon.client.values.results import (
    Link,
    ModelInfo,
    ScoreResult,
    Sentence,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextDone,
    TextResult,
    TextWarning,
    Token,
    Translation,
)
from lingon.errors import ServerError
from lingon.status import server_error
from lingon.translation.v1 import translation_pb2 as pb


def text_results(response: pb.TranslateResponse, source: str = "") -> list[TextResult]:
    """The results of a reply, in order; source: the language of the texts, if the reply does not say it."""
    known = response.model, response.version, response.source_language_code or source
    return [_text_result(result, *known) for result in response.results]


def score_results(response: pb.ScoreResponse) -> list[ScoreResult]:
    """The scores of a reply, in order."""
    return [_score_result(result, response.model, response.version) for result in response.results]


def stream_event(message: pb.TranslateStreamResponse, start: StreamStart | None, places: Sequence[int]) -> StreamEvent:
    """The event of a message.

    start: the first event of the stream; None if this message is the first
    places: indices of the stream's texts in the caller's list
    """
    match message.WhichOneof("event"):
        case "start":
            begun = message.start
            return StreamStart(begun.model, begun.version, begun.source_language_code, begun.target_language_code)
        case "delta":
            return TextDelta(_place(places, message.delta.text_index), message.delta.text)
        case "done":
            source = (start.model, start.version, start.source_language) if start else ("", "", "")
            return TextDone(_place(places, message.done.text_index), _text_result(message.done.result, *source))
        case unknown:
            raise ServerError(f"the stream has an event that this client does not know: {unknown}", code_pb2.INTERNAL)


def _place(places: Sequence[int], index: int) -> int:
    if index >= len(places):
        raise ServerError(f"the stream has an event of text {index}, and {len(places)} texts", code_pb2.INTERNAL)
    return places[index]


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
            has_confidence=model.has_confidence,
            source_languages=tuple(model.source_language_codes),
            target_languages=tuple(model.target_language_codes),
        )
        for model in response.models
    ]


def _text_result(message: pb.TextResult, model: str, version: str, source: str) -> TextResult:
    return TextResult(
        translations=tuple(_translation(hypothesis) for hypothesis in message.hypotheses),
        error=_text_error(message.status),
        warnings=_warnings(message.warnings),
        source_tokens=message.usage.source_tokens,
        target_tokens=message.usage.target_tokens,
        model=model,
        version=version,
        shortlist=message.shortlist,
        normalised_text=message.normalised_text,
        sentences=tuple(
            Sentence(
                (each.source.begin, each.source.end),
                (each.target.begin, each.target.end),
                each.score,
                each.confidence if each.HasField("confidence") else None,
                tuple(_enum_name(pb.WarningCode, code, "WARNING_CODE_") for code in each.warnings),
            )
            for each in message.sentences
        ),
        confidence=message.confidence if message.HasField("confidence") else None,
        source=source,
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


def _enum_name(enum: Any, value: int, prefix: str) -> str:
    """The name of an enum value without prefix: FINISH_REASON_END is "end"; an unknown value is its number."""
    return str(enum.Name(value)).removeprefix(prefix).lower() if value in enum.values() else str(value)


def _text_error(status: status_pb2.Status) -> ServerError | None:
    return server_error(status) if status.code else None
