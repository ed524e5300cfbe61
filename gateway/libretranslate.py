"""The API of LibreTranslate, which most free translation tools support, and its description as Swagger 2 at `/spec`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.rpc import code_pb2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lingon.documents import SUFFIXES
from lingon.errors import ServerError
from lingon.gateway.body import Fields
from lingon.gateway.documents import Documents, KeptFiles
from lingon.gateway.endpoint import Call, Endpoints, json_error
from lingon.gateway.problem import Problem
from lingon.gateway.translate import SHOWN, Untranslated, Wanted, if_unchanged, likeliest, name_of, translate
from lingon.language_tags import ServedPairs
from lingon.source_language import AUTO, TextLanguage
from lingon.translation.v1 import translation_pb2 as pb

FORM, FILE, JSON = "application/x-www-form-urlencoded", "multipart/form-data", "application/json"
TEXT: dict[str, Any] = {"type": "string"}
ERRORS = {
    400: "The request is wrong.",
    403: "The API key is wrong or missing.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body has a type that is not read.",
    429: "The server has too much to do, or the quota of the key is used up.",
    500: "The server failed.",
    503: "The server is starting or shutting down.",
    504: "The translation did not end in time.",
}


def spec(max_alternatives: int) -> dict[str, Any]:
    """Return the description; max_alternatives: bound of the field `alternatives`."""
    key, text = _field("api_key"), _field("q", required=True)
    pair = [_field("source", required=True), _field("target", required=True)]
    options = [
        _field("format", enum=["text", "html"]),
        _field("alternatives", type="integer", minimum=0, maximum=max_alternatives),
    ]
    file = _field("file", required=True, type="file")
    file_url = _object(translatedFileUrl=TEXT)
    return {
        "swagger": "2.0",
        "info": {"title": "Lingon, as LibreTranslate", "version": "1"},
        "produces": [JSON],
        "paths": {
            "/translate": {"post": _call("Translate a text", _reference("Translation"), text, *pair, *options, key)},
            "/detect": {"post": _call("Tell the language of a text", _list(_reference("Detected")), text, key)},
            "/languages": {"get": _call("List the languages", _list(_reference("Language")))},
            "/translate_file": {"post": _call("Translate a file", file_url, file, *pair, key, body=FILE)},
            "/frontend/settings": {"get": _call("What the server offers", _reference("Settings"))},
            "/health": {"get": _call("Whether the server answers", _object(status=TEXT))},
        },
        "definitions": _definitions(),
    }


def _definitions() -> dict[str, Any]:
    named = _object(code=TEXT, name=TEXT)
    language = _object(code=TEXT, name=TEXT, targets=_list(TEXT))
    detected = _object(confidence={"type": "number", "minimum": 0, "maximum": 100}, language=TEXT)
    translation = {
        **_object(translatedText=TEXT),
        "properties": {"translatedText": TEXT, "detectedLanguage": _reference("Detected"), "alternatives": _list(TEXT)},
    }
    settings = _object(
        apiKeys={"type": "boolean"},
        charLimit={"type": "integer"},
        filesTranslation={"type": "boolean"},
        frontendTimeout={"type": "integer"},
        keyRequired={"type": "boolean"},
        language=_object(source=named, target=named),
        suggestions={"type": "boolean"},
        supportedFilesFormat=_list({"type": "string", "enum": sorted(SUFFIXES)}),
    )
    return {
        "Translation": translation,
        "Detected": detected,
        "Language": language,
        "Settings": settings,
        "Error": _object(error=TEXT),
    }


def _field(name: str, *, required: bool = False, type: str = "string", **bounds: Any) -> dict[str, Any]:
    return {"name": name, "in": "formData", "type": type, "required": required, **bounds}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return an object that has all of these properties."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/definitions/{name}"}


def _call(summary: str, reply: dict[str, Any], *fields: dict[str, Any], body: str = FORM) -> dict[str, Any]:
    errors = {str(status): {"description": text, "schema": _reference("Error")} for status, text in ERRORS.items()}
    return {
        "summary": summary,
        **({"consumes": [body], "parameters": list(fields)} if fields else {}),
        "responses": {"200": {"description": "OK", "schema": reply}, **errors},
    }


MAX_ALTERNATIVES = 10
NO_KEY = ("", "undefined", "null")  # values that clients send for a missing key
READ = "GET", "POST"


class LibreTranslateApi:
    """The routes of LibreTranslate, except suggestions."""

    name = "libretranslate"
    key_in_body = True

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def routes(self, endpoints: Endpoints) -> Iterable[Route]:
        yield endpoints.route(self, "/translate", self.translate)
        yield endpoints.route(self, "/languages", self.languages, READ)
        yield endpoints.route(self, "/detect", self.detect)
        yield endpoints.route(self, "/translate_file", self.translate_file, check_files=self._kept_files)
        yield endpoints.route(self, "/download_file/{name}", self.download_file, ("GET",), linked=True)
        yield endpoints.route(self, "/frontend/settings", self.settings, ("GET",), public=True)
        yield endpoints.route(self, "/health", self.health, ("GET",), public=True)
        yield endpoints.route(self, "/spec", self.spec, ("GET",), public=True)
        yield endpoints.route(self, "/suggest", self.suggest)

    def key_of(self, request: Request, fields: Fields) -> str | None:
        """Return the field `api_key`, or `apiKey` of a client in Node, or the key of the header Authorization."""
        key = fields.text("api_key") or fields.text("apiKey")
        if key in NO_KEY:
            key = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        return key or None

    def error(self, problem: Problem, request: Request) -> Response:
        """Return {"error": message}. A wrong key is 403, as in LibreTranslate."""
        status, message = problem.http_status_of_pair, str(problem)
        if isinstance(problem, Untranslated) and not problem.known:
            message = f"{problem.language[:SHOWN]} is not supported"
        elif status == 401:
            status, message = 403, message.replace("as metadata, authorization: Bearer KEY", "as api_key")
        return json_error(status, json.dumps({"error": message}).encode(), problem)

    async def translate(self, call: Call) -> Response:
        """Translate a text, or a list of texts."""
        fields = call.fields
        texts = fields.texts("q")
        if not texts:
            raise Problem(400, "Invalid request: missing q parameter")
        markup = fields.choice("format", ("text", "html"), "text") == "html"
        wanted = replace(
            await _wanted(call),
            text=pb.TextOptions(format=pb.TEXT_FORMAT_HTML if markup else pb.TEXT_FORMAT_PLAIN),
            alternatives=fields.number("alternatives", 0, 0, MAX_ALTERNATIVES),
        )
        results = await translate(call.backend, texts, wanted, call.caller)
        found: list[dict[str, Any]] = [{"translatedText": each.text} for each in results]
        for one, each in zip(found, results, strict=True):
            if not wanted.source:
                one["detectedLanguage"] = _shown(each.source)
            if wanted.alternatives:
                one["alternatives"] = list(each.alternatives)
        return JSONResponse(
            {name: [one[name] for one in found] for name in found[0]} if fields.is_list("q") else found[0]
        )

    async def languages(self, call: Call) -> Response:
        """List the source languages and their targets."""
        pairs = ServedPairs.of(await call.backend.models(call.caller))
        tags = list(dict.fromkeys([*pairs.sources, *pairs.targets]))
        return JSONResponse(
            [{"code": tag, "name": name_of(tag), "targets": sorted({*pairs.targets_of(tag), tag})} for tag in tags]
        )

    async def detect(self, call: Call) -> Response:
        text = call.fields.text("q")
        if not text:
            raise Problem(400, "Invalid request: missing q parameter")
        reply = await call.backend.detect(pb.DetectLanguagesRequest(texts=[text]), call.caller)
        found = [_shown(TextLanguage(each.language_code, each.confidence)) for each in reply.results[0].languages]
        return JSONResponse(found or list(map(_shown, await likeliest(call.backend, [text], call.caller))))

    async def translate_file(self, call: Call) -> Response:
        """Translate a file and return the URL of its translation."""
        files = self._kept_files()
        if call.fields.file is None:
            raise Problem(400, "Invalid request: missing file parameter")
        name, content = call.fields.file
        wanted = await _wanted(call)
        kept = await files.begin(self.name, call.holder, len(content))
        try:
            found = await self._documents.translate(call, name, content, wanted)
            suffix = Path(found.name).suffix.lower()
            await files.finish(kept, suffix, found.content, found.characters)
        except BaseException:
            await files.remove(kept)
            raise
        where = call.request.url_for("download_file", name=f"{kept.number}{suffix}")
        return JSONResponse({"translatedFileUrl": str(where)})

    async def download_file(self, call: Call) -> Response:
        files, name = self._kept_files(), call.request.path_params["name"]
        kept = files.find(Path(name).stem, self.name, call.holder)
        if name != f"{kept.number}{kept.suffix}":
            raise Problem(404, "no such file")
        return Response(await files.content(kept), media_type="application/octet-stream")

    async def settings(self, call: Call) -> Response:
        """Return what the server offers, even to a page without a key."""
        formats, needs_key, pairs = sorted(SUFFIXES) if self._documents.kept else [], False, ServedPairs(())
        try:
            pairs = ServedPairs.of(await call.backend.models(call.caller))
        except ServerError as error:
            if error.code != code_pb2.UNAUTHENTICATED:
                raise
            needs_key = True
        first, second = pairs.pairs[0] if pairs.pairs else ("en", "en")
        return JSONResponse(
            {
                "apiKeys": needs_key,
                "charLimit": -1,
                "filesTranslation": bool(formats),
                "frontendTimeout": 500,
                "keyRequired": needs_key,
                "language": {
                    "source": {"code": first, "name": name_of(first)},
                    "target": {"code": second, "name": name_of(second)},
                },
                "suggestions": False,
                "supportedFilesFormat": formats,
            }
        )

    async def health(self, call: Call) -> Response:
        """Return ok if the gateway and the server behind it answer."""
        await call.backend.healthy()
        return JSONResponse({"status": "ok"})

    async def spec(self, call: Call) -> Response:
        """Return the description of this API, as Swagger 2."""
        return JSONResponse(spec(MAX_ALTERNATIVES))

    async def suggest(self, call: Call) -> Response:
        """Refuse suggestions of better translations, because nothing here learns from them."""
        raise Problem(501, "suggestions are not supported")

    def _kept_files(self) -> KeptFiles:
        if self._documents.kept is None:
            raise Problem(400, "files are not supported: the server has no folder for them")
        return self._documents.kept


async def _wanted(call: Call) -> Wanted:
    """Return the languages of a request. As in LibreTranslate, a text in the target language stays unchanged."""
    source, target = _language(call.fields, "source"), _language(call.fields, "target")
    if source.lower() == AUTO:
        return Wanted(target)
    return await if_unchanged(call.backend, Wanted(target, source), call.caller)


def _language(fields: Fields, name: str) -> str:
    found = fields.text(name)
    if not found:
        raise Problem(400, f"Invalid request: missing {name} parameter")
    return found


def _shown(detected: TextLanguage) -> dict[str, Any]:
    return {"confidence": round(100 * detected.confidence, 1), "language": detected.language}
