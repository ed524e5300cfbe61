"""The API of DeepL, versions 2 and 3: texts, languages, usage, and documents.

A document is uploaded, translated while the client asks for its state, and fetched once.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lingon.gateway.backend import digest_of
from lingon.gateway.body import Fields
from lingon.gateway.deepl_glossaries import DeepLGlossaries, check_glossaries, tag_of
from lingon.gateway.deepl_memories import DeepLMemories, memory_options
from lingon.gateway.documents import ERROR, TRANSLATED, Documents, Kept, KeptFiles
from lingon.gateway.endpoint import Call, Endpoints, as_problem, json_error
from lingon.gateway.problem import Problem
from lingon.gateway.stores import if_kept
from lingon.gateway.translate import SHOWN, Untranslated, Wanted, check_pair, if_unchanged, name_of, translate
from lingon.language_tags import ServedPairs, primary
from lingon.translation.v1 import translation_pb2 as pb

API = "deepl"
SECONDS_LEFT = 5  # seconds; estimate for clients of the time that a document takes


class DeepLDocuments:
    """The routes of documents."""

    def __init__(
        self,
        documents: Documents,
        wanted: Callable[[Call], Awaitable[Wanted]],
        count: Callable[[str | None, int], None],
    ) -> None:
        """wanted: returns the translation that a call asks for; count: adds characters of a key."""
        self._documents, self._wanted, self._count = documents, wanted, count

    async def upload(self, call: Call) -> Response:
        """Store a document and start its translation."""
        files, fields = self.kept_files(), call.fields
        if fields.file is None:
            raise Problem(400, "Parameter 'file' not specified.")
        given, content = fields.file
        name = fields.text("filename") or given
        self._documents.check_kind(name)
        _check_output_format(name, fields.text("output_format"))
        wanted = await self._wanted(call)
        if wanted.source:
            _check_other_language(wanted.source, wanted)
        if not wanted.unchanged:
            check_pair(await call.backend.models(call.caller, fresh=False), wanted.source, wanted.target)
        secret = secrets.token_hex(32).upper()
        kept = await files.begin(API, call.holder, len(content), secret)
        call = replace(call, caller=call.caller.background())
        call.held.start(self._translate(call, files, kept, name, content, wanted))
        return JSONResponse({"document_id": kept.number.upper(), "document_key": secret})

    async def status(self, call: Call) -> Response:
        """Return the state of a document."""
        kept = self._kept(call)
        found: dict[str, Any] = {"document_id": kept.number.upper(), "status": kept.status}
        if kept.status == TRANSLATED:
            found |= {"seconds_remaining": 0, "billed_characters": kept.characters}
        elif kept.status == ERROR:
            found |= {"error_message": kept.message, "message": kept.message}
        else:
            found["seconds_remaining"] = SECONDS_LEFT
        return JSONResponse(found)

    async def download(self, call: Call) -> Response:
        """Return a translation, once."""
        kept = self._kept(call)
        if kept.status != TRANSLATED:
            raise Problem(503, "the document is not translated yet", retry_after=SECONDS_LEFT)
        content = await self.kept_files().content(kept)
        await self.kept_files().remove(kept)
        return Response(content, media_type="application/octet-stream")

    async def _translate(
        self, call: Call, files: KeptFiles, kept: Kept, name: str, content: bytes, wanted: Wanted
    ) -> None:
        try:
            found = await self._documents.translate(call, name, content, wanted)
            if found.detected:
                _check_other_language(found.detected, wanted)
            await files.finish(kept, Path(found.name).suffix.lower(), found.content, found.characters)
            self._count(call.caller.key, found.characters)
            return
        except Exception as error:  # the client gets every error as the state of the document
            message = str(as_problem(error))
        with suppress(Problem):  # the disk is full, which is logged
            await files.fail(kept, message)

    def _kept(self, call: Call) -> Kept:
        """Return the document of a call, which needs its document_key."""
        number, secret = call.request.path_params["number"].lower(), call.fields.text("document_key")
        return self.kept_files().find(number, API, call.holder, secret)

    def kept_files(self) -> KeptFiles:
        """Return the folder of documents. Raises Problem without one."""
        if self._documents.kept is None:
            raise Problem(400, "documents are not supported: the server has no folder for them")
        return self._documents.kept


def _check_output_format(name: str, wanted: str) -> None:
    """Raise Problem for a file that is to become one of another format."""
    suffix = Path(name).suffix.lower().removeprefix(".")
    if wanted and suffix and wanted.lower().removeprefix(".") != suffix:
        message = f"output_format must be that of the file, {suffix}, or be left out, got {wanted[:SHOWN]!r}"
        raise Problem(400, message, field="output_format")


def _check_other_language(source: str, wanted: Wanted) -> None:
    """Raise Problem for a document in the target language, as DeepL does. A variety of it stays unchanged."""
    if source.lower() == wanted.target.lower():
        raise Problem(400, "Source and target language are equal.", field="target_lang")


READ = "GET", "POST"  # methods that clients use for lists
KEYS = 4096  # keys with a count of characters, the latest ones
MAX_TEXTS = 50  # texts of a request, as in DeepL's API
QUOTA_EXCEEDED = 456  # DeepL's HTTP status of an account that may store or translate no more; clients do not repeat it
NO_LIMIT = 10**12  # characters; DeepL's value for an account without a limit
CHANGES = "POST", "PUT", "PATCH", "DELETE"
RESOURCES = ("", "translate_text", "translate_document", "glossary")  # of the list of languages of version 3
VARIETIES = {"en": ("EN-GB", "EN-US"), "pt": ("PT-BR", "PT-PT")}
"""Targets that clients expect in place of a language alone."""

REFUSED = ("style_id", "custom_instructions", "style_rules")
IGNORED = {"context": ("",), "outline_detection": ("", "1", "true")}
"""Fields without effect here, with values that have no effect with DeepL. A reply names fields with other values."""

MODEL_TYPES = ("", "quality_optimized", "latency_optimized", "prefer_quality_optimized")  # all use the same model
TAG_HANDLING_VERSIONS = ("", "v1", "v2")  # all have the same effect
UNTRANSLATED = {
    "source": "Value for 'source_lang' not supported",
    "target": "Value for 'target_lang' not supported",
    "": "Values for 'source_lang' and 'target_lang' not supported together",
}
"""Starts of the messages for pairs without a model, by side. Programs search for these words."""

FORMALITY = ("default", "prefer_more", "prefer_less")
FORMATS = {"": pb.TEXT_FORMAT_PLAIN, "html": pb.TEXT_FORMAT_HTML, "xml": pb.TEXT_FORMAT_XML}
SPLITTING = {
    "0": pb.SENTENCE_SPLITTING_OFF,
    "off": pb.SENTENCE_SPLITTING_OFF,
    "1": pb.SENTENCE_SPLITTING_ON,
    "default": pb.SENTENCE_SPLITTING_UNSPECIFIED,
    "nonewlines": pb.SENTENCE_SPLITTING_NONEWLINES,
}


class UsedCharacters:
    """The number of characters translated with each of the latest keys, since the start.

    A server without keys accepts any. The number and the length of keys therefore need a bound.
    """

    def __init__(self, most: int = KEYS) -> None:
        self._most, self._by_digest = most, OrderedDict[str, int]()

    def of(self, key: str | None) -> int:
        return self._by_digest.get(digest_of(key or ""), 0)

    def add(self, key: str | None, characters: int) -> None:
        digest = digest_of(key or "")
        self._by_digest[digest] = self._by_digest.pop(digest, 0) + characters
        if len(self._by_digest) > self._most:
            self._by_digest.popitem(last=False)


class DeepLApi:
    """The routes of DeepL, also below /deepl/. Some clients drop the path of their server URL, others keep it."""

    name = "deepl"
    key_in_body = True

    def __init__(self, documents: Documents) -> None:
        self._used = UsedCharacters()
        self._glossaries, self._memories = DeepLGlossaries(), DeepLMemories()
        self._documents = DeepLDocuments(documents, self._wanted, self._used.add)

    def routes(self, endpoints: Endpoints) -> Iterable[Route]:
        for root in ("", "/deepl"):
            yield endpoints.route(self, f"{root}/v2/languages", self.languages, READ)
            yield endpoints.route(self, f"{root}/v3/languages", self.languages_of_resource, READ)
            yield endpoints.route(self, f"{root}/v2/translate", self.translate, READ)
            yield endpoints.route(self, f"{root}/v2/usage", self.usage, READ)
            yield endpoints.route(
                self, f"{root}/v2/document", self._documents.upload, check_files=self._documents.kept_files
            )
            yield endpoints.route(self, f"{root}/v2/document/{{number}}", self._documents.status, READ)
            yield endpoints.route(self, f"{root}/v2/document/{{number}}/result", self._documents.download, READ)
            yield from self._glossaries.routes(self, endpoints, root)
            yield from self._memories.routes(self, endpoints, root)
            styles = f"{root}/v3/style_rules"
            yield endpoints.route(self, styles, self.no_styles, ("GET",))
            yield endpoints.route(self, styles, partial(self.refused, "style rules"), CHANGES)
            yield endpoints.route(self, f"{styles}/{{rest:path}}", self.no_style, ("GET", *CHANGES))
            write = f"{root}/v2/write/{{rest:path}}"
            yield endpoints.route(self, write, partial(self.refused, "other wordings of a text"))

    def key_of(self, request: Request, fields: Fields) -> str | None:
        """Return the key of `Authorization: DeepL-Auth-Key KEY`, or the field auth_key of older clients."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        found = key.strip() if scheme.lower() in ("deepl-auth-key", "bearer") else fields.text("auth_key")
        return found or None

    def error(self, problem: Problem, request: Request) -> Response:
        """Return {"message": text} with DeepL's status for it."""
        status, message = problem.http_status_of_pair, str(problem)
        if isinstance(problem, Untranslated):
            message = f"{UNTRANSLATED[problem.side]}: {message}"
        elif problem.field == "file":
            message = f"Invalid file: {message}"
        if status == 401:
            status = 403
        elif status == 501:
            status = 400  # the official clients repeat every 5xx for 15 seconds
        elif problem.reason == "STORE_FULL":
            status = QUOTA_EXCEEDED
        elif problem.is_overload:
            status = 503 if problem.reason == "QUEUE_FULL" else 429
        response = json_error(status, json.dumps({"message": message}).encode(), problem)
        response.headers["x-trace-id"] = secrets.token_hex(16)
        return response

    async def translate(self, call: Call) -> Response:
        fields, texts = call.fields, call.fields.texts("text")
        if not texts:
            raise Problem(400, "Parameter 'text' not specified.")
        if len(texts) > MAX_TEXTS:
            raise Problem(413, f"a request may have {MAX_TEXTS} texts at most, got {len(texts)}")
        results = await translate(call.backend, texts, await self._wanted(call), call.caller)
        found: list[dict[str, Any]] = []
        for text, each in zip(texts, results, strict=True):
            one = {"detected_source_language": primary(each.source.language).upper(), "text": each.text}
            found.append({**one, "billed_characters": len(text), **_named(fields)})
        self._used.add(call.caller.key, sum(map(len, texts)))
        return _reply({"translations": found}, fields)

    async def languages(self, call: Call) -> Response:
        """List the languages of sources or of targets. Some clients send the type as the body of a GET."""
        kind = call.fields.choice("type", ("source", "target"), "source")
        pairs = ServedPairs.of(await call.backend.models(call.caller))
        if kind == "source":
            codes = [(tag, primary(tag).upper()) for tag in pairs.sources]
        else:
            codes = [(tag, code) for tag in pairs.targets for code in VARIETIES.get(tag.lower(), (tag.upper(),))]
        found = [{"language": code, "name": name_of(code if "-" in code else tag)} for tag, code in codes]
        if kind == "target":
            found = [{**each, "supports_formality": False} for each in found]  # type: ignore[dict-item]
        return _reply(list({each["language"]: each for each in found}.values()), call.fields)

    async def languages_of_resource(self, call: Call) -> Response:
        """List the languages of version 3, each once, with its sides. Without a resource as version 2 lists them."""
        if not (resource := call.fields.text("resource")):
            return await self.languages(call)
        call.fields.choice("resource", RESOURCES, "")
        pairs = ServedPairs.of(await call.backend.models(call.caller))
        sources = {primary(tag) for tag in pairs.sources}
        targets = {tag_of(code) for tag in pairs.targets for code in (tag, *VARIETIES.get(tag.lower(), ()))}
        if resource == "glossary":
            targets = {primary(tag) for tag in targets}
            if await if_kept(call.stores.glossaries()) is None:
                sources, targets = set(), set()
        found = []
        for code in sorted(sources | targets):
            sides = {"usable_as_source": code in sources, "usable_as_target": code in targets}
            found.append({"lang": code, "name": name_of(code), **sides, "features": {}})
        return _reply(found, call.fields)

    async def usage(self, call: Call) -> Response:
        """Return how many characters were translated with this key since the start."""
        return _reply({"character_count": self._used.of(call.caller.key), "character_limit": NO_LIMIT}, call.fields)

    async def no_styles(self, call: Call) -> Response:
        """Return an empty list. Tools ask for it before they translate, even if they use no style."""
        return _reply({"style_rules": []}, call.fields)

    async def no_style(self, call: Call) -> Response:
        """Refuse an item of the empty list, or a change of it."""
        raise Problem(404, "there is none of this ID: style rules are not supported")

    async def refused(self, what: str, call: Call) -> Response:
        """Refuse an unsupported feature."""
        raise Problem(501, f"{what} are not supported")

    async def _wanted(self, call: Call) -> Wanted:
        """Return how texts or documents are to be translated. Raises Problem for invalid fields."""
        wanted = await if_unchanged(call.backend, self._read(call.fields), call.caller)
        names = await check_glossaries(call, _glossary_ids(call.fields), wanted.source, wanted.target)
        memory = await memory_options(call, wanted.source, wanted.target)
        return replace(wanted, glossaries=names, memory=memory)

    def _read(self, fields: Fields) -> Wanted:
        target = fields.text("target_lang")
        if not target:
            raise Problem(400, "Parameter 'target_lang' not specified.", field="target_lang")
        for name in REFUSED:
            if fields.text(name):
                raise Problem(400, f"{name} is not supported", field=name)
        if (formality := fields.text("formality", "default").lower()) not in FORMALITY:
            raise Problem(400, f"'formality' {formality[:40]!r} is not supported for given 'target_lang'.")
        for name, known in (("model_type", MODEL_TYPES), ("tag_handling_version", TAG_HANDLING_VERSIONS)):
            fields.choice(name, known, "")
        markup = fields.choice("tag_handling", FORMATS, "")
        splitting = fields.choice("split_sentences", SPLITTING, "default")
        return Wanted(
            tag_of(target),
            tag_of(fields.text("source_lang")),
            pb.TextOptions(
                format=FORMATS[markup],
                split_sentences=SPLITTING[splitting],
                ignore_tags=fields.names("ignore_tags"),
                splitting_tags=fields.names("splitting_tags"),
                non_splitting_tags=fields.names("non_splitting_tags"),
            ),
        )


def _glossary_ids(fields: Fields) -> list[str]:
    """Return the glossaries of a request: one, or a list that is separated by commas in a form."""
    one, several = fields.text("glossary_id"), fields.names("glossary_ids")
    if one and several:
        raise Problem(400, "glossary_id and glossary_ids exclude each other", field="glossary_ids")
    return [one] if one else several


def _named(fields: Fields) -> Mapping[str, str]:
    """Return the fields of a request that the reply repeats with each translation."""
    found = {}
    if fields.text("model_type"):
        found["model_type_used"] = fields.text("model_type").removeprefix("prefer_")
    if fields.text("tag_handling_version"):
        found["tag_handling_version"] = fields.text("tag_handling_version")
    return found


def _reply(content: Any, fields: Fields) -> Response:
    ignored = ", ".join(name for name, usual in IGNORED.items() if fields.text(name) not in usual)
    headers = {"x-trace-id": secrets.token_hex(16), **({"x-lingon-ignored": ignored} if ignored else {})}
    return JSONResponse(content, headers=headers)
