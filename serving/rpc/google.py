"""Google Cloud Translation v3 on the gRPC port, for its clients. Off by default.

Its requests are converted to requests of our own service, so that models, quotas and errors are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import grpc
from google.rpc import code_pb2

from lingon.errors import EngineFault, InvalidRequest, RequestError, Unsupported
from lingon.google.codes import tag_of_google
from lingon.google.v3 import cloud_translation_pb2 as google
from lingon.language_tags import canonical, is_one_language
from lingon.serving.auth.charges import charged
from lingon.serving.models.catalog import Catalog
from lingon.serving.models.registry import ServedModel
from lingon.serving.rpc.calls import Context
from lingon.serving.rpc.google_glossaries import OPERATIONS, GoogleGlossaryService
from lingon.serving.rpc.service import TranslationService
from lingon.source_language import NotTranslated, Probabilities, TextLanguage, by_way, sources_of, starts_of, takes_long
from lingon.translation.v1 import translation_pb2 as pb

SERVICE = "google.cloud.translation.v3.TranslationService"
MAX_CONTENTS = 1024
FORMATS = {"": pb.TEXT_FORMAT_HTML, "text/html": pb.TEXT_FORMAT_HTML, "text/plain": pb.TEXT_FORMAT_PLAIN}


class GoogleService:
    """The methods TranslateText, DetectLanguage and GetSupportedLanguages, and those of glossaries."""

    def __init__(
        self,
        service: TranslationService,
        glossaries: GoogleGlossaryService,
        catalog: Callable[[], Catalog[ServedModel]],
        max_texts: int,
    ) -> None:
        """max_texts: texts of a request to our service; catalog: returns the models that are served now."""
        self._service, self.glossaries = service, glossaries
        self._catalog, self._max_texts = catalog, max_texts

    async def translate_text(
        self, request: google.TranslateTextRequest, context: Context
    ) -> google.TranslateTextResponse:
        """Translate texts, twice with a glossary. The language of a text is detected if it is not given.

        A text that is detected to be in the target language stays unchanged.
        """
        _check(request)
        contents, target = list(request.contents), tag_of_google(request.target_language_code)
        given = tag_of_google(request.source_language_code)
        glossary = ""
        if request.HasField("glossary_config"):
            glossary = await self.glossaries.of(context).name_for(request.glossary_config, given, target)
        if given:
            sources = [TextLanguage(given, 1.0)] * len(contents)
        else:
            sources = await self._sources(contents, target, FORMATS[request.mime_type], context)
        reply = google.TranslateTextResponse(translations=await self._translations(sources, request, context))
        if glossary:
            found = await self._translations(sources, request, context, glossary)
            for each in found:
                each.glossary_config.CopyFrom(request.glossary_config)
            reply.glossary_translations.extend(found)
        return reply

    async def _translations(
        self,
        sources: Sequence[TextLanguage],
        request: google.TranslateTextRequest,
        context: Context,
        glossary: str = "",
    ) -> list[google.Translation]:
        """Return the translations of all texts; sources: their languages, glossary: its name, empty for none."""
        contents, found = request.contents, dict[int, str]()
        for (language, stays), indices in by_way(sources).items():
            if stays:
                found.update({index: contents[index] for index in indices})
                continue
            for first in range(0, len(indices), self._max_texts):
                part = indices[first : first + self._max_texts]
                some = [contents[index] for index in part]
                texts = await self._translated(some, part, language, request, context, glossary)
                found.update(zip(part, texts, strict=True))
        detected = [""] * len(sources) if request.source_language_code else [each.language for each in sources]
        return [
            google.Translation(translated_text=found[index], detected_language_code=detected[index])
            for index in range(len(contents))
        ]

    async def detect_language(
        self, request: google.DetectLanguageRequest, context: Context
    ) -> google.DetectLanguageResponse:
        reply = await self._detected([request.content], context)
        languages = [
            google.DetectedLanguage(language_code=each.language_code, confidence=each.confidence)
            for each in reply.results[0].languages
        ]
        return google.DetectLanguageResponse(languages=languages)

    async def get_supported_languages(
        self, request: google.GetSupportedLanguagesRequest, context: Context
    ) -> google.SupportedLanguages:
        """List the languages of the served models."""
        sides = [entry.sides for entry in self._catalog().entries]
        sources, targets = ({tag for side in sides for tag in side[index]} for index in (0, 1))
        languages = [
            google.SupportedLanguage(language_code=tag, support_source=tag in sources, support_target=tag in targets)
            for tag in sorted(sources | targets)
        ]
        return google.SupportedLanguages(languages=languages)

    async def _sources(
        self, contents: Sequence[str], target: str, text_format: pb.TextFormat.ValueType, context: Context
    ) -> list[TextLanguage]:
        """Return the source language of each text. Raises InvalidRequest if no model translates one."""
        canonical(target, "target_language_code")  # refuses an invalid tag
        served = self._catalog().sources_of(target)
        read = partial(starts_of, contents, text_format)
        starts = await asyncio.to_thread(read) if takes_long(contents, text_format) else read()
        detected: list[Probabilities] = []
        for first in range(0, len(starts), self._max_texts):
            for each in (await self._detected(starts[first : first + self._max_texts], context)).results:
                detected.append([(one.language_code, one.confidence) for one in each.languages])
        try:
            return sources_of(starts, detected, served, target, partial(is_one_language, target))
        except NotTranslated as error:
            raise InvalidRequest(f"{error.side}_language_code", str(error)) from None

    async def _detected(self, texts: Sequence[str], context: Context) -> pb.DetectLanguagesResponse:
        """Return the languages of texts, charged as a request to our service."""
        inner = pb.DetectLanguagesRequest(texts=texts)
        with charged(inner):
            return await self._service.DetectLanguages(inner, context)

    async def _translated(
        self,
        texts: Sequence[str],
        indices: Sequence[int],
        source: str,
        request: google.TranslateTextRequest,
        context: Context,
        glossary: str,
    ) -> list[str]:
        """Return the translations of texts of one language; indices: their indices in the request, for errors."""
        inner = pb.TranslateRequest(
            texts=texts,
            source_language_code=source,
            target_language_code=tag_of_google(request.target_language_code),
            options=pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT),
            text=pb.TextOptions(format=FORMATS[request.mime_type]),
            glossaries=[glossary] if glossary else [],
        )
        with charged(inner):
            reply = await self._service.Translate(inner, context)
        return [_text_of(result, index) for result, index in zip(reply.results, indices, strict=True)]


def add_google(server: grpc.aio.Server, service: GoogleService) -> None:
    """Add the service to a server, under Google's name, and the one that tells about its operations."""
    methods: dict[str, tuple[Any, Any]] = {
        "TranslateText": (service.translate_text, google.TranslateTextRequest),
        "DetectLanguage": (service.detect_language, google.DetectLanguageRequest),
        "GetSupportedLanguages": (service.get_supported_languages, google.GetSupportedLanguagesRequest),
        **service.glossaries.methods(),
    }
    for name, own in ((SERVICE, methods), (OPERATIONS, service.glossaries.operations())):
        handlers: dict[str, Any] = {
            method: grpc.unary_unary_rpc_method_handler(
                function, request_deserializer=kind.FromString, response_serializer=_serialise
            )
            for method, (function, kind) in own.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        server.add_registered_method_handlers(name, handlers)


def _serialise(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _check(request: google.TranslateTextRequest) -> None:
    """Raise RequestError for unsupported fields."""
    if not 1 <= len(request.contents) <= MAX_CONTENTS:
        raise InvalidRequest("contents", f"contents must be 1 to {MAX_CONTENTS}, got {len(request.contents)}")
    if request.HasField("transliteration_config"):
        raise Unsupported("transliteration_config is not supported")
    if request.mime_type not in FORMATS:
        raise InvalidRequest("mime_type", f"mime_type must be text/plain or text/html, got {request.mime_type[:40]!r}")
    if not request.target_language_code:
        raise InvalidRequest("target_language_code", "target_language_code must name a language")


def _text_of(result: pb.TextResult, index: int) -> str:
    """Return a translation. Raises RequestError, which names the text, if it has none."""
    if result.status.code == code_pb2.OK:
        return str(result.hypotheses[0].text)
    if result.status.code == code_pb2.INVALID_ARGUMENT:
        raise InvalidRequest("contents", f"contents[{index}]: {result.status.message}")
    error: RequestError = EngineFault(f"contents[{index}]: {result.status.message}")
    error.code = result.status.code
    raise error
