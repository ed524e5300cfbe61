"""The glossaries of Google Cloud Translation v3: its requests as those of GlossaryService, over REST and gRPC.

A glossary is stored before the reply, so that its operation is done when it begins. The project and the location of a
name have no meaning.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from google.longrunning import operations_proto_pb2 as operations_pb2
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import code_pb2

from lingon.errors import InvalidRequest, LingonError, NotStored, RequestError, ServerError
from lingon.google.codes import tag_of_google
from lingon.google.v3 import cloud_translation_pb2 as google
from lingon.language_tags import is_same_tag, primary
from lingon.terms.files import read_terms
from lingon.translation.v1 import stores_pb2 as stores
from lingon.translation.v1 import translation_pb2 as pb

TYPES = "type.googleapis.com/google.cloud.translation.v3."  # what the types of messages in operations begin with
SUCCEEDED = 2  # state of an operation
PAGE, MOST_OF_PAGE = 100, 1000  # items of a page: default and bound
SHOWN = 60  # characters of a value in a message
KINDS = {
    "text/tab-separated-values": "tsv",
    "text/csv": "csv",
    "application/x-tmx+xml": "tmx",
    "application/xml": "tmx",
    "text/xml": "tmx",
}
"""The suffixes of files by their media types."""

_PLACE = r"projects/[^/]+/locations/[^/]+"
_GLOSSARY = re.compile(rf"(?P<place>{_PLACE})/glossaries/(?P<name>[^/]+)")
_ENTRY = re.compile(rf"(?P<glossary>{_PLACE}/glossaries/[^/]+)/glossaryEntries/(?P<entry>[^/]+)")
_OPERATION = re.compile(rf"(?P<place>{_PLACE})/operations/(?P<kind>create|update|delete)-(?P<name>[^/]+)")
_DATA = re.compile(r"data:(?P<type>[\w.+/-]+)(?P<parameters>(?:;[\w=.-]+)*),(?P<content>.*)", re.DOTALL)
_FILTER = re.compile(r"(src|tgt)=([\w-]+)(?:\s+AND\s+(src|tgt)=([\w-]+))?")


class KeptGlossaries(Protocol):
    """The methods of GlossaryService for one caller. They raise ServerError or RequestError."""

    async def put_glossary(self, header: stores.PutGlossaryHeader, terms: Sequence[pb.Term]) -> stores.Glossary: ...

    async def glossary(self, name: str) -> stores.Glossary: ...

    async def glossaries(self) -> list[stores.Glossary]: ...

    async def terms(self, name: str, source: str, target: str) -> list[pb.Term]: ...

    async def delete_glossary(self, name: str, source: str = "", target: str = "") -> None: ...


class _Name(NamedTuple):
    """The name of a glossary: its project and location, and its name on the server."""

    place: str
    name: str

    def __str__(self) -> str:
        return f"{self.place}/glossaries/{self.name}"


class _Pair(NamedTuple):
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that is done."""

    name: str
    metadata: Message
    response: Message

    def message(self) -> operations_pb2.Operation:
        """Return it with messages of Google's types, which have the bytes of ours."""
        found = operations_pb2.Operation(name=self.name, done=True)
        for packed, message in ((found.metadata, self.metadata), (found.response, self.response)):
            packed.type_url, packed.value = type_url(message), message.SerializeToString()
        return found


def type_url(message: Message) -> str:
    """Return the name of Google's type that a message has the bytes of."""
    return f"{TYPES}{message.DESCRIPTOR.name}"


class GoogleGlossaries:
    """The methods for glossaries and their entries. All raise InvalidRequest, and what KeptGlossaries raises."""

    def __init__(self, kept: KeptGlossaries) -> None:
        self._kept = kept

    async def create(self, request: google.CreateGlossaryRequest) -> Operation:
        """Store a new glossary of one pair of languages."""
        wanted = request.glossary
        name = _glossary_name(wanted.name, "glossary.name")
        if not wanted.HasField("language_pair"):
            message = "glossary.language_pair must be set; sets of equivalent terms are not supported"
            raise InvalidRequest("glossary.language_pair", message)
        pair = _Pair(
            tag_of_google(wanted.language_pair.source_language_code),
            tag_of_google(wanted.language_pair.target_language_code),
        )
        header = _header(name, pair, label=wanted.display_name)
        header.create = True
        found = described(name, await self._kept.put_glossary(header, await _terms_of(wanted.input_config, pair)))
        metadata = google.CreateGlossaryMetadata(name=found.name, state=SUCCEEDED, submit_time=found.submit_time)
        return Operation(_operation(name, "create"), metadata, found)

    async def update(self, request: google.UpdateGlossaryRequest) -> Operation:
        """Rename a glossary, or replace its terms, as the mask says; without a mask, what the request has."""
        wanted, paths = request.glossary, set(request.update_mask.paths)
        if unknown := paths - {"display_name", "input_config"}:
            message = f"update_mask may have display_name and input_config, got {min(unknown)[:SHOWN]!r}"
            raise InvalidRequest("update_mask", message)
        name = _glossary_name(wanted.name, "glossary.name")
        stored = await self._kept.glossary(name.name)
        pair = _only_pair(stored)
        header = _header(name, pair, label=wanted.display_name, version=stored.version)
        if paths == {"input_config"}:
            header.label = ""
        header.merge = not wanted.HasField("input_config") or paths == {"display_name"}
        terms = [] if header.merge else await _terms_of(wanted.input_config, pair)
        found = described(name, await self._kept.put_glossary(header, terms))
        metadata = google.UpdateGlossaryMetadata(glossary=found, state=SUCCEEDED, submit_time=found.end_time)
        return Operation(_operation(name, "update"), metadata, found)

    async def get(self, request: google.GetGlossaryRequest) -> google.Glossary:
        name = _glossary_name(request.name, "name")
        return described(name, await self._kept.glossary(name.name))

    async def list(self, request: google.ListGlossariesRequest) -> google.ListGlossariesResponse:
        """List the glossaries that pass the filter, sorted by name."""
        passes = _filter(request.filter)
        left = [each for each in await self._kept.glossaries() if passes(each) and each.name > request.page_token]
        page = left[: _page_size(request.page_size)]
        token = page[-1].name if len(page) < len(left) else ""
        found = [described(_Name(request.parent, each.name), each) for each in page]
        return google.ListGlossariesResponse(glossaries=found, next_page_token=token)

    async def delete(self, request: google.DeleteGlossaryRequest) -> Operation:
        name = _glossary_name(request.name, "name")
        await self._kept.delete_glossary(name.name)
        now = Timestamp()
        now.GetCurrentTime()
        return _deleted(name, now)

    async def operation(self, name: str) -> Operation:
        """Return an operation. Its name has the glossary, whose state tells whether it took place."""
        match = _OPERATION.fullmatch(name)
        if match is None:
            raise _unknown_operation(name)
        glossary = _Name(match["place"], match["name"])
        try:
            stored = await self._kept.glossary(glossary.name)
        except (ServerError, RequestError) as error:
            if error.code != code_pb2.NOT_FOUND:
                raise
            if match["kind"] != "delete":
                raise _unknown_operation(name) from None
            return _deleted(glossary, Timestamp())
        found = described(glossary, stored)
        if match["kind"] == "create":
            created = google.CreateGlossaryMetadata(name=found.name, state=SUCCEEDED, submit_time=found.submit_time)
            return Operation(name, created, found)
        if match["kind"] == "update":
            return Operation(name, google.UpdateGlossaryMetadata(glossary=found, state=SUCCEEDED), found)
        raise _unknown_operation(name)

    async def name_for(self, config: google.TranslateTextGlossaryConfig, source: str, target: str) -> str:
        """Return the glossary of a translation by its name on the server; source: empty if it is to be detected.

        Raises InvalidRequest for a glossary without terms for the two languages, which would have no effect.
        """
        name = _glossary_name(config.glossary, "glossary_config.glossary")
        stored = await self._kept.glossary(name.name)
        pairs = [_Pair(each.source_language_code, each.target_language_code) for each in stored.dictionaries]
        if not any(
            (not source or primary(source) == primary(pair.source)) and primary(target) == primary(pair.target)
            for pair in pairs
        ):
            message = f"glossary {name.name[:SHOWN]} has no terms from {source or 'any language'} to {target}"
            raise InvalidRequest("glossary_config.glossary", message)
        return name.name

    async def create_entry(self, request: google.CreateGlossaryEntryRequest) -> google.GlossaryEntry:
        """Add a term to a glossary; it replaces one with the same source."""
        name = _glossary_name(request.parent, "parent")
        stored = await self._kept.glossary(name.name)
        pair = _pair_of(request.glossary_entry, stored)
        term = _term_of(request.glossary_entry, pb.Term())
        header = _header(name, pair, version=stored.version)
        header.merge = True
        await self._kept.put_glossary(header, [term])
        return _entry(name, pair, term)

    async def update_entry(self, request: google.UpdateGlossaryEntryRequest) -> google.GlossaryEntry:
        """Replace a term."""
        name, pair, source = _entry_name(request.glossary_entry.name, "glossary_entry.name")
        changed: list[pb.Term] = []

        def change(term: pb.Term) -> list[pb.Term]:
            changed.append(_term_of(request.glossary_entry, term))
            return changed

        await self._rewrite(name, pair, source, change)
        return _entry(name, pair, changed[0])

    async def delete_entry(self, request: google.DeleteGlossaryEntryRequest) -> None:
        """Remove a term."""
        name, pair, source = _entry_name(request.name, "name")
        await self._rewrite(name, pair, source, lambda term: [])

    async def get_entry(self, request: google.GetGlossaryEntryRequest) -> google.GlossaryEntry:
        name, pair, source = _entry_name(request.name, "name")
        terms = await self._kept.terms(name.name, *pair)
        return _entry(name, pair, terms[_index(terms, name, source)])

    async def list_entries(self, request: google.ListGlossaryEntriesRequest) -> google.ListGlossaryEntriesResponse:
        """List the terms of all pairs of languages, in their order."""
        name = _glossary_name(request.parent, "parent")
        found: list[tuple[_Pair, pb.Term]] = []
        for each in (await self._kept.glossary(name.name)).dictionaries:
            pair = _Pair(each.source_language_code, each.target_language_code)
            found += [(pair, term) for term in await self._kept.terms(name.name, *pair) if term.target]
        begin = _page_begin(request.page_token)
        end = begin + _page_size(request.page_size)
        entries = [_entry(name, pair, term) for pair, term in found[begin:end]]
        token = str(end) if end < len(found) else ""
        return google.ListGlossaryEntriesResponse(glossary_entries=entries, next_page_token=token)

    async def _rewrite(
        self, name: _Name, pair: _Pair, source: str, change: Callable[[pb.Term], Sequence[pb.Term]]
    ) -> None:
        """Store the terms of a pair again, with what `change` returns in place of the one with this source."""
        version = (await self._kept.glossary(name.name)).version
        terms = await self._kept.terms(name.name, *pair)
        at = _index(terms, name, source)
        await self._kept.put_glossary(
            _header(name, pair, version=version), [*terms[:at], *change(terms[at]), *terms[at + 1 :]]
        )


def described(name: _Name, glossary: stores.Glossary) -> google.Glossary:
    """Return a glossary in Google's form: of one pair of languages, or of a set if it has several pairs."""
    found = google.Glossary(name=str(name), display_name=glossary.label)
    found.entry_count = sum(each.terms for each in glossary.dictionaries)
    found.submit_time.FromMilliseconds(glossary.created)
    found.end_time.FromMilliseconds(glossary.changed)
    pairs = [(each.source_language_code, each.target_language_code) for each in glossary.dictionaries]
    if len(pairs) == 1:
        found.language_pair.source_language_code, found.language_pair.target_language_code = pairs[0]
    else:
        found.language_codes_set.language_codes.extend(sorted({tag for pair in pairs for tag in pair}))
    return found


def _deleted(name: _Name, when: Timestamp) -> Operation:
    metadata = google.DeleteGlossaryMetadata(name=str(name), state=SUCCEEDED, submit_time=when)
    response = google.DeleteGlossaryResponse(name=str(name), submit_time=when, end_time=when)
    return Operation(_operation(name, "delete"), metadata, response)


def _operation(name: _Name, kind: str) -> str:
    return f"{name.place}/operations/{kind}-{name.name}"


def _unknown_operation(name: str) -> NotStored:
    return NotStored("operation", name, f"there is no operation {name[:SHOWN]!r}")


def _glossary_name(name: str, field: str) -> _Name:
    match = _GLOSSARY.fullmatch(name)
    if match is None:
        raise InvalidRequest(field, f"{field} must be projects/P/locations/L/glossaries/NAME, got {name[:SHOWN]!r}")
    return _Name(match["place"], match["name"])


def _header(name: _Name, pair: _Pair, *, label: str = "", version: int = 0) -> stores.PutGlossaryHeader:
    return stores.PutGlossaryHeader(
        name=name.name,
        label=label,
        source_language_code=pair.source,
        target_language_code=pair.target,
        expected_version=version,
    )


def _only_pair(glossary: stores.Glossary) -> _Pair:
    """Return the languages of a glossary of one pair. Raises InvalidRequest for another one."""
    if len(glossary.dictionaries) != 1:
        message = f"glossary {glossary.name} has {len(glossary.dictionaries)} pairs of languages, and must have one"
        raise InvalidRequest("name", message)
    (each,) = glossary.dictionaries
    return _Pair(each.source_language_code, each.target_language_code)


async def _terms_of(config: google.GlossaryInputConfig, pair: _Pair) -> list[pb.Term]:
    """Return the terms of a data: address, or none without an address. Raises InvalidRequest.

    pair: languages of the terms, which a file of TMX names
    """
    address, field = config.gcs_source.input_uri, "glossary.input_config.gcs_source.input_uri"
    if not address:
        return []
    match = _DATA.fullmatch(address)
    if match is None:
        message = f"{field} must be a data: address, such as data:text/csv,house%2CHaus, or the entries be created one "
        raise InvalidRequest(field, f"{message}by one: the server reads no storage; got {address[:SHOWN]!r}")
    kind = KINDS.get(match["type"].lower())
    if kind is None:
        expected = ", ".join(KINDS)
        raise InvalidRequest(field, f"{field} must be of the type {expected}, got {match['type'][:SHOWN]!r}")
    # A thread, because a glossary of megabytes would block the event loop for too long.
    return await asyncio.to_thread(_read, match["content"], match["parameters"].lower(), kind, pair, field)


def _read(content: str, parameters: str, kind: str, pair: _Pair, field: str) -> list[pb.Term]:
    """Return the terms of the content of an address. Raises InvalidRequest."""
    data = unquote_to_bytes(content)
    try:
        data = base64.b64decode(data, validate=True) if parameters.endswith(";base64") else data
        return [term.message() for term in read_terms(f"glossary.{kind}", *pair, content=data)]
    except binascii.Error as error:
        raise InvalidRequest(field, f"{field} is no base64: {error}") from None
    except LingonError as error:
        raise InvalidRequest(field, str(error)) from None


def _filter(text: str) -> Callable[[stores.Glossary], bool]:
    """Return whether a glossary has a pair with the languages of a filter. Raises InvalidRequest."""
    match = _FILTER.fullmatch(text.strip())
    if text and match is None:
        raise InvalidRequest("filter", f"filter must be such as 'src=en AND tgt=de', got {text[:SHOWN]!r}")
    wanted = {match[1]: match[2], **({match[3]: match[4]} if match[3] else {})} if match else {}

    def passes(glossary: stores.Glossary) -> bool:
        return not wanted or any(
            is_same_tag(wanted.get("src", each.source_language_code), each.source_language_code)
            and is_same_tag(wanted.get("tgt", each.target_language_code), each.target_language_code)
            for each in glossary.dictionaries
        )

    return passes


def _page_size(wanted: int) -> int:
    if wanted < 0:
        raise InvalidRequest("page_size", f"page_size must be at least 0, got {wanted}")
    return min(wanted or PAGE, MOST_OF_PAGE)


def _page_begin(token: str) -> int:
    if not re.fullmatch("[0-9]{0,9}", token, re.ASCII):
        raise InvalidRequest("page_token", f"page_token must be one of a reply, got {token[:SHOWN]!r}")
    return int(token or "0")


def _entry(name: _Name, pair: _Pair, term: pb.Term) -> google.GlossaryEntry:
    coded = base64.urlsafe_b64encode(term.source.encode()).decode().rstrip("=")
    found = google.GlossaryEntry(name=f"{name}/glossaryEntries/{pair.source}.{pair.target}.{coded}")
    sides = (found.terms_pair.source_term, term.source), (found.terms_pair.target_term, term.target)
    for (side, text), code in zip(sides, pair, strict=True):
        side.language_code, side.text = code, text
    return found


def _entry_name(name: str, field: str) -> tuple[_Name, _Pair, str]:
    """Return the glossary, the languages and the source of an entry. Raises InvalidRequest."""
    match = _ENTRY.fullmatch(name)
    parts = match["entry"].split(".") if match else []
    try:
        source, target, coded = parts
        text = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode()
    except ValueError:
        raise InvalidRequest(field, f"{field} must be the name of an entry in a reply, got {name[:SHOWN]!r}") from None
    assert match is not None
    return _glossary_name(match["glossary"], field), _Pair(source, target), text


def _pair_of(entry: google.GlossaryEntry, glossary: stores.Glossary) -> _Pair:
    """Return the languages of an entry: those that it names, or those of a glossary of one pair."""
    pair = _Pair(
        tag_of_google(entry.terms_pair.source_term.language_code),
        tag_of_google(entry.terms_pair.target_term.language_code),
    )
    return pair if all(pair) else _only_pair(glossary)


def _term_of(entry: google.GlossaryEntry, stored: pb.Term) -> pb.Term:
    """Return a term with the texts of an entry and the rest of a stored one."""
    found = pb.Term()
    found.CopyFrom(stored)
    found.source, found.target = entry.terms_pair.source_term.text, entry.terms_pair.target_term.text
    if not found.source or not found.target:
        field = "glossary_entry.terms_pair"
        raise InvalidRequest(field, f"{field} must have the text of source_term and of target_term")
    return found


def _index(terms: Sequence[pb.Term], name: _Name, source: str) -> int:
    """Return the index of the term with a source. Raises NotStored."""
    for index, term in enumerate(terms):
        if term.source == source:
            return index
    raise NotStored("glossary entry", name.name, f"glossary {name.name} has no entry for {source[:SHOWN]!r}")
