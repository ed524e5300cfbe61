"""The APIs of Google Cloud Translation: v2, and v3 over REST."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lingon.gateway import google_glossaries
from lingon.gateway.body import Fields
from lingon.gateway.endpoint import Call, Endpoints, bearer, json_error
from lingon.gateway.problem import Problem
from lingon.gateway.translate import Translated, Wanted, likeliest, name_of, translate
from lingon.google.codes import tag_of_google
from lingon.google.v3 import cloud_translation_pb2 as google
from lingon.language_tags import ServedPairs
from lingon.source_language import DECIDED, TextLanguage
from lingon.translation.v1 import translation_pb2 as pb

READ = "GET", "POST"
V2_TEXTS, V3_TEXTS = 128, 1024  # texts of a request, as in Google's API
PARENT = "/v3/{parent:path}"
REASONS = {400: "invalid", 401: "authError", 403: "forbidden", 404: "notFound", 429: "rateLimitExceeded"}


class GoogleApi:
    """The routes of both versions."""

    name = "google"
    key_in_body = False

    def routes(self, endpoints: Endpoints) -> Iterable[Route]:
        v2 = "/language/translate/v2"
        yield endpoints.route(self, v2, self.translate_v2, READ)
        yield endpoints.route(self, f"{v2}/languages", self.languages_v2, READ)
        yield endpoints.route(self, f"{v2}/detect", self.detect_v2, READ)
        yield endpoints.route(self, f"{PARENT}:translateText", self.translate_v3)
        yield endpoints.route(self, f"{PARENT}:detectLanguage", self.detect_v3)
        yield endpoints.route(self, f"{PARENT}/supportedLanguages", self.languages_v3, ("GET",))
        yield from google_glossaries.routes(self, endpoints)

    def key_of(self, request: Request, fields: Fields) -> str | None:
        """Return the header X-Goog-Api-Key, the parameter key, or a bearer token."""
        return request.headers.get("x-goog-api-key") or fields.text("key") or bearer(request)

    def error(self, problem: Problem, request: Request) -> Response:
        status, message = problem.http_status_of_pair, str(problem)
        detail = {"message": message, "domain": "global", "reason": REASONS.get(status, "backendError")}
        error = {"code": status, "message": message, "errors": [detail], "status": problem.status}
        return json_error(status, json.dumps({"error": error}).encode(), problem)

    async def translate_v2(self, call: Call) -> Response:
        """Translate texts, which are HTML unless the format says otherwise."""
        fields, texts = call.fields, _texts_v2(call.fields)
        markup = fields.choice("format", ("html", "text"), "html") == "html"
        source, target = tag_of_google(fields.text("source")), _target(fields.text("target"))
        results = await translate(call.backend, texts, Wanted(target, source, _read(markup=markup)), call.caller)
        detected = None if source else "detectedSourceLanguage"
        return JSONResponse({"data": {"translations": _translations(results, detected)}})

    async def languages_v2(self, call: Call) -> Response:
        """List the languages, with names if a target is given. The names are English in every case."""
        pairs = ServedPairs.of(await call.backend.models(call.caller))
        target = call.fields.text("target")
        tags = sorted({*pairs.sources, *pairs.targets})
        named = [{"language": tag, **({"name": name_of(tag)} if target else {})} for tag in tags]
        return JSONResponse({"data": {"languages": named}})

    async def detect_v2(self, call: Call) -> Response:
        found = await likeliest(call.backend, _texts_v2(call.fields), call.caller)
        return JSONResponse({"data": {"detections": [[_detection(each)] for each in found]}})

    async def translate_v3(self, call: Call) -> Response:
        """Translate contents, which are HTML unless the MIME type says otherwise."""
        fields = call.fields
        texts = fields.texts("contents")
        if not texts:
            raise Problem(400, "contents must have at least one text", field="contents")
        _check_count(len(texts), V3_TEXTS)
        if "transliterationConfig" in fields:
            raise Problem(501, "transliterationConfig is not supported", field="transliterationConfig")
        mime = fields.text("mimeType") or "text/html"
        if mime not in ("text/plain", "text/html"):
            raise Problem(400, f"mimeType must be text/plain or text/html, got {mime[:40]!r}", field="mimeType")
        source = tag_of_google(fields.text("sourceLanguageCode"))
        target = _target(fields.text("targetLanguageCode"))
        wanted = Wanted(target, source, _read(markup=mime == "text/html"))
        detected = None if source else "detectedLanguageCode"
        config = next(iter(fields.objects("glossaryConfig")), None)
        if config is None:
            results = await translate(call.backend, texts, wanted, call.caller)
            return JSONResponse({"translations": _translations(results, detected)})
        plain, with_terms = await self._both(call, texts, wanted, config.text("glossary"))
        shown = {"glossaryConfig": {"glossary": config.text("glossary")}}
        found = [{**each, **shown} for each in _translations(with_terms, detected)]
        return JSONResponse({"translations": _translations(plain, detected), "glossaryTranslations": found})

    async def _both(
        self, call: Call, texts: list[str], wanted: Wanted, glossary: str
    ) -> tuple[list[Translated], list[Translated]]:
        """Return the translations of texts without a glossary, and with it."""
        asked = google.TranslateTextGlossaryConfig(glossary=glossary)
        name = await google_glossaries.glossary_for(call, asked, wanted.source, wanted.target)
        plain = await translate(call.backend, texts, wanted, call.caller)
        return plain, await translate(call.backend, texts, replace(wanted, glossaries=(name,)), call.caller)

    async def detect_v3(self, call: Call) -> Response:
        content = call.fields.text("content")
        if not content:
            raise Problem(400, "content must have text", field="content")
        (found,) = await likeliest(call.backend, [content], call.caller)
        return JSONResponse({"languages": [{"languageCode": found.language, "confidence": found.confidence}]})

    async def languages_v3(self, call: Call) -> Response:
        """List the languages, with names if a language is given. The names are English in every case."""
        pairs = ServedPairs.of(await call.backend.models(call.caller))
        sources, targets = set(pairs.sources), set(pairs.targets)
        found: list[dict[str, Any]] = []
        for tag in sorted(sources | targets):
            one: dict[str, Any] = {
                "languageCode": tag,
                "supportSource": tag in sources,
                "supportTarget": tag in targets,
            }
            if call.fields.text("displayLanguageCode"):
                one["displayName"] = name_of(tag)
            found.append(one)
        return JSONResponse({"languages": found})


def _texts_v2(fields: Fields) -> list[str]:
    texts = fields.texts("q")
    if not texts:
        raise Problem(400, "Required Text", field="q")
    _check_count(len(texts), V2_TEXTS)
    return texts


def _translations(results: Iterable[Translated], detected: str | None) -> list[dict[str, Any]]:
    """Return translations in Google's form; detected: name of the field for a detected language, or None."""
    return [{"translatedText": each.text, **({detected: each.source.language} if detected else {})} for each in results]


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise Problem(400, f"a request may have {most} texts at most, got {count}")


def _target(code: str) -> str:
    if not code:
        raise Problem(400, "the target language is missing", field="target")
    return tag_of_google(code)


def _read(*, markup: bool) -> pb.TextOptions:
    return pb.TextOptions(format=pb.TEXT_FORMAT_HTML if markup else pb.TEXT_FORMAT_PLAIN)


def _detection(found: TextLanguage) -> dict[str, Any]:
    return {"language": found.language, "confidence": found.confidence, "isReliable": found.confidence >= DECIDED}
