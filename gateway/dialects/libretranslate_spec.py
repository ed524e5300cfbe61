"""The description of LibreTranslate's API as Swagger 2, for tools that read it at `/spec`."""

from __future__ import annotations

from typing import Any

from lingon.documents import SUFFIXES

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
        "properties": {
            "translatedText": TEXT,
            "detectedLanguage": _reference("Detected"),
            "alternatives": _list(TEXT),
        },
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
