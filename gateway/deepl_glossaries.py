"""The glossaries of DeepL's API: version 2, of one pair of languages each, and version 3, of several."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lingon.errors import LingonError
from lingon.gateway.body import Fields
from lingon.gateway.endpoint import Api, Call, Endpoints
from lingon.gateway.problem import Problem
from lingon.gateway.stores import Stores, if_found, if_kept
from lingon.glossary_calls import change_again
from lingon.language_tags import ServedPairs, is_same_tag, primary
from lingon.terms.files import read_terms
from lingon.translation.v1 import stores_pb2 as stores
from lingon.translation.v1 import translation_pb2 as pb

FORMATS = "tsv", "csv"
TSV = "text/tab-separated-values"
MOST = 5  # glossaries of a request
_NOT_FOUND = "Glossary not found"


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The terms of a request for one pair of languages, as tags."""

    source: str
    target: str
    terms: tuple[pb.Term, ...]


class DeepLGlossaries:
    """The routes of glossaries. The ID of a glossary is its name on the server, and its name is the label there.

    A glossary that was stored without a label has its ID as its name.
    """

    def routes(self, api: Api, endpoints: Endpoints, root: str) -> Iterator[Route]:
        """Yield the routes; root: what the paths begin with."""

        def route(path: str, handler: Callable[[Call], Awaitable[Response]], method: str, **options: Any) -> Route:
            return endpoints.route(api, f"{root}{path}", handler, (method,), **options)

        yield route("/v2/glossary-language-pairs", self.pairs, "GET")
        yield route("/v2/glossaries", self.list_single, "GET")
        yield route("/v2/glossaries", self.create_single, "POST", large=True)
        yield route("/v2/glossaries/{name}", self.get_single, "GET")
        yield route("/v2/glossaries/{name}", self.delete, "DELETE")
        yield route("/v2/glossaries/{name}/entries", self.entries_single, "GET")
        yield route("/v3/glossaries", self.list_all, "GET")
        yield route("/v3/glossaries", self.create, "POST", large=True)
        yield route("/v3/glossaries/{name}", self.get_one, "GET")
        yield route("/v3/glossaries/{name}", self.edit, "PATCH", large=True)
        yield route("/v3/glossaries/{name}", self.delete, "DELETE")
        yield route("/v3/glossaries/{name}/entries", self.entries, "GET")
        yield route("/v3/glossaries/{name}/dictionaries", self.replace_dictionary, "PUT", large=True)
        yield route("/v3/glossaries/{name}/dictionaries", self.delete_dictionary, "DELETE")

    async def pairs(self, call: Call) -> Response:
        """List the pairs of languages for which glossaries are used: those of the models, without their regions."""
        pairs: Iterable[tuple[str, str]] = ()
        if await if_kept(call.stores.glossaries()) is not None:
            models = await call.backend.models(call.caller)
            pairs = dict.fromkeys((primary(one), primary(other)) for one, other in ServedPairs.of(models).pairs)
        found = [{"source_lang": one, "target_lang": other} for one, other in pairs if one != other]
        return JSONResponse({"supported_languages": found})

    async def list_single(self, call: Call) -> Response:
        """List the glossaries of one pair; version 2 has no form for the others."""
        found = await if_kept(call.stores.glossaries()) or []
        return JSONResponse({"glossaries": [_single(each) for each in found if len(each.dictionaries) == 1]})

    async def create_single(self, call: Call) -> Response:
        name, dictionary = _needed(call.fields, "name"), await _dictionary(call.fields)
        return JSONResponse(_single(await _create(call, name, [dictionary])), 201)

    async def get_single(self, call: Call) -> Response:
        return JSONResponse(_single(await _one_pair(call)))

    async def entries_single(self, call: Call) -> Response:
        """Return the entries of a glossary of one pair as tab-separated values."""
        (dictionary,) = (await _one_pair(call)).dictionaries
        return Response(await _tsv(call, dictionary), media_type=TSV)

    async def list_all(self, call: Call) -> Response:
        found = await if_kept(call.stores.glossaries()) or []
        return JSONResponse({"glossaries": [_several(each) for each in found]})

    async def create(self, call: Call) -> Response:
        """Store a glossary with all of its dictionaries, or nothing."""
        name, dictionaries = _needed(call.fields, "name"), await _dictionaries(call.fields)
        if not dictionaries:
            raise Problem(400, "Parameter 'dictionaries' not specified.", field="dictionaries")
        return JSONResponse(_several(await _create(call, name, dictionaries)), 201)

    async def get_one(self, call: Call) -> Response:
        return JSONResponse(_several(await _glossary(call)))

    async def edit(self, call: Call) -> Response:
        """Rename a glossary, or add entries to its dictionaries; one replaces an entry of the same source."""
        name, dictionaries = call.fields.text("name"), await _dictionaries(call.fields)
        if not name and not dictionaries:
            raise Problem(400, "name or dictionaries must be given")

        async def change(found: stores.Glossary) -> stores.Glossary:
            header = _header(found.name, label=name, version=found.version)
            header.merge = True
            terms = _terms(dictionaries or _unchanged(found))
            return await Stores(call.backend, call.caller).put_glossary(header, terms)

        return JSONResponse(_several(await _changed(call, change)))

    async def replace_dictionary(self, call: Call) -> Response:
        """Replace the entries of a pair of languages, which may be new."""
        each = await _dictionary(call.fields)

        async def change(found: stores.Glossary) -> stores.Glossary:
            header = _header(found.name, version=found.version)
            return await Stores(call.backend, call.caller).put_glossary(header, _terms([each]))

        changed = dictionary_for(await _changed(call, change), each.source, each.target)
        assert changed is not None
        return JSONResponse(_counted(changed))

    async def entries(self, call: Call) -> Response:
        """Return the entries of the dictionaries of the given languages, or of all without any."""
        found = await _glossary(call)
        source, target = call.fields.text("source_lang"), call.fields.text("target_lang")
        chosen: Iterable[stores.GlossaryDictionary | None] = found.dictionaries
        if source or target:
            chosen = [dictionary_for(found, tag_of(source), tag_of(target))]
        dictionaries = []
        for each in chosen:
            if each is None:
                raise _no_dictionary(source, target)
            one = {"source_lang": each.source_language_code.lower(), "target_lang": each.target_language_code.lower()}
            dictionaries.append({**one, "entries": await _tsv(call, each), "entries_format": "tsv"})
        return JSONResponse({"dictionaries": dictionaries})

    async def delete_dictionary(self, call: Call) -> Response:
        source, target = _needed(call.fields, "source_lang"), _needed(call.fields, "target_lang")
        found = await _glossary(call)
        each = dictionary_for(found, tag_of(source), tag_of(target))
        if each is None:
            raise _no_dictionary(source, target)
        pair = each.source_language_code, each.target_language_code
        await call.stores.delete_glossary(found.name, *pair)
        return Response(status_code=204)

    async def delete(self, call: Call) -> Response:
        """Remove a glossary of any number of dictionaries."""
        await if_found(call.stores.delete_glossary(_id(call.request)), _NOT_FOUND)
        return Response(status_code=204)


async def check_glossaries(call: Call, names: Iterable[str], source: str, target: str) -> tuple[str, ...]:
    """Return the glossaries that a translation asks for. Raises Problem unless each has terms for the languages."""
    names = tuple(names)
    if len(names) > MOST:
        raise Problem(400, f"a request may have {MOST} glossaries at most, got {len(names)}", field="glossary_ids")
    if names and not source:
        raise Problem(400, "Parameter 'source_lang' not specified: a glossary needs it.", field="source_lang")
    for name in names:
        glossary = await if_found(call.stores.glossary(name), _NOT_FOUND)
        if dictionary_for(glossary, source, target) is None:
            raise Problem(
                400, f"the glossary {name[:40]!r} has no entries from {source} to {target}", field="glossary_id"
            )
    return names


def dictionary_for(glossary: stores.Glossary, source: str, target: str) -> stores.GlossaryDictionary | None:
    """Return the dictionary for two languages: that of their exact tags, else of their languages without regions."""

    def matching(same: Callable[[str, str], bool]) -> Iterator[stores.GlossaryDictionary]:
        for each in glossary.dictionaries:
            if same(each.source_language_code, source) and same(each.target_language_code, target):
                yield each

    found = next(matching(is_same_tag), None)
    return found or next(matching(lambda tag, other: primary(tag) == primary(other)), None)


async def _glossary(call: Call) -> stores.Glossary:
    found = await if_found(call.stores.glossary(_id(call.request)), _NOT_FOUND)
    return found


async def _one_pair(call: Call) -> stores.Glossary:
    """Return a glossary of one pair. Raises Problem 404 for another one, which version 2 has no form for."""
    found = await _glossary(call)
    if len(found.dictionaries) != 1:
        raise Problem(404, f"{_NOT_FOUND}: it has {len(found.dictionaries)} dictionaries; use /v3/glossaries")
    return found


async def _create(call: Call, label: str, dictionaries: list[Dictionary]) -> stores.Glossary:
    """Store a new glossary, all of its dictionaries or nothing."""
    header = _header(str(uuid.uuid4()), label=label)
    header.create = True
    return await Stores(call.backend, call.caller).put_glossary(header, _terms(dictionaries))


async def _changed(call: Call, change: Callable[[stores.Glossary], Awaitable[stores.Glossary]]) -> stores.Glossary:
    """Change the glossary of a call. `change` gets it as it is now, again if another call has changed it meanwhile."""

    async def changed() -> stores.Glossary:
        return await change(await _glossary(call))

    return await change_again(changed)


def _unchanged(glossary: stores.Glossary) -> list[Dictionary]:
    """Return a change of no terms, which carries a new label. Raises Problem for a glossary without dictionaries."""
    if not glossary.dictionaries:
        raise Problem(400, "a glossary without dictionaries cannot be renamed")
    each = glossary.dictionaries[0]
    return [Dictionary(each.source_language_code, each.target_language_code, ())]


def _header(name: str, *, label: str = "", version: int = 0) -> stores.PutGlossaryHeader:
    return stores.PutGlossaryHeader(name=name, label=label, expected_version=version)


def _terms(dictionaries: list[Dictionary]) -> dict[tuple[str, str], tuple[pb.Term, ...]]:
    """Return the terms of dictionaries by their languages. Raises Problem for two of the same languages."""
    terms = {(each.source, each.target): each.terms for each in dictionaries}
    if len(terms) < len(dictionaries):
        message = f"{len(dictionaries)} dictionaries of {len(terms)} pairs of languages; give one for each pair"
        raise Problem(400, message, field="dictionaries")
    return terms


async def _dictionaries(fields: Fields) -> list[Dictionary]:
    return [await _dictionary(each) for each in fields.objects("dictionaries")]


async def _dictionary(fields: Fields) -> Dictionary:
    """Return the dictionary of fields. Raises Problem, which names the entry, for entries that cannot be read."""
    source, target = _needed(fields, "source_lang"), _needed(fields, "target_lang")
    entries, kind = _needed(fields, "entries"), fields.choice("entries_format", FORMATS, "tsv")
    # A thread, because 16 MiB of entries would block the event loop for too long.
    terms = await asyncio.to_thread(_read, entries, kind)
    return Dictionary(tag_of(source), tag_of(target), terms)


def _read(entries: str, kind: str) -> tuple[pb.Term, ...]:
    try:
        found = tuple(term.message() for term in read_terms(f"entries.{kind}", content=entries.encode()))
    except LingonError as error:
        raise Problem(400, f"Invalid glossary entries provided: {error}", field="entries") from None
    if not found:
        raise Problem(400, "Invalid glossary entries provided: there are none", field="entries")
    return found


async def _tsv(call: Call, dictionary: stores.GlossaryDictionary) -> str:
    """Return the entries of a dictionary as lines of tab-separated values."""
    pair = dictionary.source_language_code, dictionary.target_language_code
    terms = await call.stores.terms(_id(call.request), *pair)
    # A thread, because 100,000 terms would block the event loop for too long.
    return await asyncio.to_thread(_lines, terms)


def _lines(terms: Iterable[pb.Term]) -> str:
    """Return terms as lines. Left out are terms without a target, and further ones of a source: clients refuse them."""
    targets: dict[str, str] = {}
    for term in terms:
        if term.target:
            targets.setdefault(term.source, term.target)
    return "\n".join(f"{source}\t{target}" for source, target in targets.items())


def _needed(fields: Fields, name: str) -> str:
    if not (found := fields.text(name)):
        raise Problem(400, f"Parameter '{name}' not specified.", field=name)
    return found


def _no_dictionary(source: str, target: str) -> Problem:
    return Problem(404, f"{_NOT_FOUND}: it has no dictionary from {source[:40]!r} to {target[:40]!r}")


def _id(request: Request) -> str:
    return str(request.path_params["name"])


def tag_of(code: str) -> str:
    """Return the tag of a code of DeepL, such as en-GB for EN-GB."""
    language, dash, rest = code.partition("-")
    return f"{language.lower()}{dash}{rest}"


def timestamp(milliseconds: int) -> str:
    """Return a time since 1970 in the form of DeepL's API, such as 2026-11-30T01:14:25.123Z."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def _single(glossary: stores.Glossary) -> dict[str, Any]:
    (dictionary,) = glossary.dictionaries
    return {**_named(glossary), "ready": True, **_counted(dictionary)}


def _several(glossary: stores.Glossary) -> dict[str, Any]:
    return {**_named(glossary), "dictionaries": [_counted(each) for each in glossary.dictionaries]}


def _named(glossary: stores.Glossary) -> dict[str, Any]:
    name = glossary.label or glossary.name
    return {"glossary_id": glossary.name, "name": name, "creation_time": timestamp(glossary.created)}


def _counted(dictionary: stores.GlossaryDictionary) -> dict[str, Any]:
    source, target = dictionary.source_language_code.lower(), dictionary.target_language_code.lower()
    return {"source_lang": source, "target_lang": target, "entry_count": dictionary.terms}
