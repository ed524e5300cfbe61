"""The glossaries of Google Cloud Translation v3: its requests as those of GlossaryService, over REST and gRPC.

A glossary is stored before the reply, so that its operation is done when it begins. The project and the location of a
name have no meaning.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from google.longrunning import operations_proto_pb2 as operations_pb2
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import code_pb2

from lingon.errors import InvalidRequest, LingonError, NotStored, RequestError, ServerError
from lingon.glossary_calls import GlossaryCalls, change_again
from lingon.google.codes import tag_of_google
from lingon.google.term_sets import (
    Pair,
    TermSet,
    check_languages,
    holding,
    is_of_sets,
    joined,
    read_sets,
    sets_of,
    tag_of,
    terms_of,
)
from lingon.google.v3 import cloud_translation_pb2 as google
from lingon.language_tags import is_same_tag, primary
from lingon.terms.files import read_terms
from lingon.translation.v1 import stores_pb2 as stores
from lingon.translation.v1 import translation_pb2 as pb

TYPES = "type.googleapis.com/google.cloud.translation.v3."  # what the types of messages in operations begin with
SUCCEEDED = 2  # state of an operation
PAGE, MOST_OF_PAGE = 100, 1000  # items of a page: default and bound
SHOWN = 60  # characters of a value in a message
INPUT_URI = "glossary.input_config.gcs_source.input_uri"
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
    """The methods for glossaries and their entries. All raise InvalidRequest, and what GlossaryCalls raises.

    A change is made again if another one came between, because Google's requests name no version.
    """

    def __init__(self, kept: GlossaryCalls) -> None:
        self._kept = kept

    async def create(self, request: google.CreateGlossaryRequest) -> Operation:
        """Store a new glossary of one pair of languages, or of sets of equivalent terms; all of it, or nothing."""
        wanted = request.glossary
        name = _glossary_name(wanted.name, "glossary.name")
        if wanted.HasField("language_codes_set"):
            field = "glossary.language_codes_set.language_codes"
            languages = check_languages(wanted.language_codes_set.language_codes, field)
            terms: Mapping[Pair, Sequence[pb.Term]] = terms_of(
                await _sets_of(wanted.input_config, languages), languages
            )
        elif wanted.HasField("language_pair"):
            pair = _Pair(
                tag_of_google(wanted.language_pair.source_language_code),
                tag_of_google(wanted.language_pair.target_language_code),
            )
            terms = {pair: await _terms_of(wanted.input_config, pair)}
        else:
            message = "glossary.language_pair or glossary.language_codes_set must be set"
            raise InvalidRequest("glossary.language_pair", message)
        header = _header(name, label=wanted.display_name)
        header.create = True
        found = await self._described(name, await self._kept.put_glossary(header, terms))
        metadata = google.CreateGlossaryMetadata(name=found.name, state=SUCCEEDED, submit_time=found.submit_time)
        return Operation(_operation(name, "create"), metadata, found)

    async def update(self, request: google.UpdateGlossaryRequest) -> Operation:
        """Rename a glossary, or replace its terms, as the mask says; without a mask, what the request has."""
        return await change_again(partial(self._update, request))

    async def _update(self, request: google.UpdateGlossaryRequest) -> Operation:
        wanted, paths = request.glossary, set(request.update_mask.paths)
        if unknown := paths - {"display_name", "input_config"}:
            message = f"update_mask may have display_name and input_config, got {min(unknown)[:SHOWN]!r}"
            raise InvalidRequest("update_mask", message)
        name = _glossary_name(wanted.name, "glossary.name")
        stored = await self._kept.glossary(name.name)
        label = "" if paths == {"input_config"} else wanted.display_name
        refills = wanted.HasField("input_config") and paths != {"display_name"}
        if refills and (before := await self._sets(stored)) is not None:
            sets = await _sets_of(wanted.input_config, _languages(stored))
            stored = await self._change_sets(name, stored, before, sets, label)
        else:
            pair = _only_pair(stored) if refills or not stored.dictionaries else _pairs(stored)[0]
            header = _header(name, label=label, version=stored.version)
            header.merge = not refills
            terms = await _terms_of(wanted.input_config, pair) if refills else []
            stored = await self._kept.put_glossary(header, {pair: terms})
        found = await self._described(name, stored)
        metadata = google.UpdateGlossaryMetadata(glossary=found, state=SUCCEEDED, submit_time=found.end_time)
        return Operation(_operation(name, "update"), metadata, found)

    async def get(self, request: google.GetGlossaryRequest) -> google.Glossary:
        name = _glossary_name(request.name, "name")
        return await self._described(name, await self._kept.glossary(name.name))

    async def list(self, request: google.ListGlossariesRequest) -> google.ListGlossariesResponse:
        """List the glossaries that pass the filter, sorted by name."""
        passes = _filter(request.filter)
        left = [each for each in await self._kept.glossaries() if passes(each) and each.name > request.page_token]
        page = left[: _page_size(request.page_size)]
        token = page[-1].name if len(page) < len(left) else ""
        found = [await self._described(_Name(request.parent, each.name), each) for each in page]
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
        found = await self._described(glossary, stored)
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
        pairs = _pairs(stored)
        if not any(
            (not source or primary(source) == primary(pair.source)) and primary(target) == primary(pair.target)
            for pair in pairs
        ):
            message = f"glossary {name.name[:SHOWN]} has no terms from {source or 'any language'} to {target}"
            raise InvalidRequest("glossary_config.glossary", message)
        return name.name

    async def create_entry(self, request: google.CreateGlossaryEntryRequest) -> google.GlossaryEntry:
        """Add a term to a glossary; it replaces one with the same source. A set is joined to one with a common term."""
        return await change_again(partial(self._create_entry, request))

    async def _create_entry(self, request: google.CreateGlossaryEntryRequest) -> google.GlossaryEntry:
        name = _glossary_name(request.parent, "parent")
        stored = await self._kept.glossary(name.name)
        if request.glossary_entry.HasField("terms_set"):
            before, wanted = await self._only_sets(stored), _set_of(request.glossary_entry, stored)
            after = await asyncio.to_thread(joined, [*before, wanted], "glossary_entry.terms_set")
            await self._change_sets(name, stored, before, after)
            return _set_entry(name, holding(after, wanted))
        pair = _pair_of(request.glossary_entry, stored)
        term = _term_of(request.glossary_entry, pb.Term())
        header = _header(name, version=stored.version)
        header.merge = True
        await self._kept.put_glossary(header, {pair: [term]})
        return _entry(name, pair, term)

    async def update_entry(self, request: google.UpdateGlossaryEntryRequest) -> google.GlossaryEntry:
        """Replace a term, or a set of equivalent terms."""
        return await change_again(partial(self._update_entry, request))

    async def _update_entry(self, request: google.UpdateGlossaryEntryRequest) -> google.GlossaryEntry:
        if in_set := _set_entry_name(request.glossary_entry.name):
            stored = await self._kept.glossary(in_set[0].name)
            wanted = _set_of(request.glossary_entry, stored)
            await self._rewrite_set(stored, in_set, [wanted])
            return _set_entry(in_set[0], wanted)
        name, pair, source = _entry_name(request.glossary_entry.name, "glossary_entry.name")
        changed: list[pb.Term] = []

        def change(term: pb.Term) -> list[pb.Term]:
            changed.append(_term_of(request.glossary_entry, term))
            return changed

        await self._rewrite(name, pair, source, change)
        return _entry(name, pair, changed[0])

    async def delete_entry(self, request: google.DeleteGlossaryEntryRequest) -> None:
        """Remove a term, or a set of equivalent terms."""
        await change_again(partial(self._delete_entry, request))

    async def _delete_entry(self, request: google.DeleteGlossaryEntryRequest) -> None:
        if in_set := _set_entry_name(request.name):
            await self._rewrite_set(await self._kept.glossary(in_set[0].name), in_set, [])
            return
        name, pair, source = _entry_name(request.name, "name")
        await self._rewrite(name, pair, source, lambda term: [])

    async def get_entry(self, request: google.GetGlossaryEntryRequest) -> google.GlossaryEntry:
        if in_set := _set_entry_name(request.name):
            sets = await self._only_sets(await self._kept.glossary(in_set[0].name))
            return _set_entry(in_set[0], sets[_index_of_set(sets, *in_set)])
        name, pair, source = _entry_name(request.name, "name")
        terms = await self._kept.terms(name.name, *pair)
        return _entry(name, pair, terms[_index(terms, name, source)])

    async def list_entries(self, request: google.ListGlossaryEntriesRequest) -> google.ListGlossaryEntriesResponse:
        """List the sets of equivalent terms, or the terms of all pairs of languages, in their order."""
        name = _glossary_name(request.parent, "parent")
        stored = await self._kept.glossary(name.name)
        found = list[Callable[[], google.GlossaryEntry]]()
        if (sets := await self._sets(stored)) is not None:
            found += [partial(_set_entry, name, each) for each in sets]
        else:
            for pair in _pairs(stored):
                terms = await self._kept.terms(name.name, *pair)
                found += [partial(_entry, name, pair, term) for term in terms if term.target]
        begin = _page_begin(request.page_token)
        end = begin + _page_size(request.page_size)
        entries = [entry() for entry in found[begin:end]]
        token = str(end) if end < len(found) else ""
        return google.ListGlossaryEntriesResponse(glossary_entries=entries, next_page_token=token)

    async def _described(self, name: _Name, stored: stores.Glossary) -> google.Glossary:
        """Return a glossary in Google's form; the entries of one of sets are the sets."""
        found = described(name, stored)
        if (sets := await self._sets(stored)) is not None:
            found.entry_count = len(sets)
        return found

    async def _sets(self, stored: stores.Glossary) -> Sequence[TermSet] | None:
        """Return the sets of a glossary, or None for one of other terms."""
        pairs = _pairs(stored)
        if not is_of_sets(pairs):
            return None
        terms: dict[Pair, Sequence[pb.Term]] = {pair: await self._kept.terms(stored.name, *pair) for pair in pairs}
        return await asyncio.to_thread(sets_of, terms)

    async def _only_sets(self, stored: stores.Glossary) -> Sequence[TermSet]:
        """Return the sets of a glossary. Raises InvalidRequest for one of other terms."""
        sets = await self._sets(stored)
        if sets is None:
            raise InvalidRequest("name", f"glossary {stored.name} has terms of pairs of languages, and no sets")
        return sets

    async def _change_sets(
        self, name: _Name, stored: stores.Glossary, before: Sequence[TermSet], after: Sequence[TermSet], label: str = ""
    ) -> stores.Glossary:
        """Store other sets in place of those of a glossary, in one change: the terms of each pair that changes, and a
        label.
        """
        languages = _languages(stored)
        old, new = terms_of(before, languages), terms_of(after, languages)
        changed = [pair for pair in new if new[pair] != old[pair]] or [next(iter(new))]
        header = _header(name, label=label, version=stored.version)
        return await self._kept.put_glossary(header, {pair: new[pair] for pair in changed})

    async def _rewrite_set(
        self, stored: stores.Glossary, in_set: tuple[_Name, str, str], wanted: Sequence[TermSet]
    ) -> None:
        """Store other sets in place of one; in_set: its glossary, and the language and the text of a term of it."""
        before = await self._only_sets(stored)
        at = _index_of_set(before, *in_set)
        rest = [*before[:at], *before[at + 1 :]]
        after = await asyncio.to_thread(joined, [*before[:at], *wanted, *before[at + 1 :]], "glossary_entry.terms_set")
        if len(after) < len(rest) + len(wanted):
            raise InvalidRequest("glossary_entry.terms_set", "glossary_entry.terms_set has a term of another set")
        await self._change_sets(in_set[0], stored, before, after)

    async def _rewrite(
        self, name: _Name, pair: _Pair, source: str, change: Callable[[pb.Term], Sequence[pb.Term]]
    ) -> None:
        """Store the terms of a pair again, with what `change` returns in place of the one with this source."""
        version = (await self._kept.glossary(name.name)).version
        terms = await self._kept.terms(name.name, *pair)
        at = _index(terms, name, source)
        await self._kept.put_glossary(
            _header(name, version=version), {pair: [*terms[:at], *change(terms[at]), *terms[at + 1 :]]}
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


def _header(name: _Name, *, label: str = "", version: int = 0) -> stores.PutGlossaryHeader:
    return stores.PutGlossaryHeader(name=name.name, label=label, expected_version=version)


def _pairs(glossary: stores.Glossary) -> list[_Pair]:
    return [_Pair(each.source_language_code, each.target_language_code) for each in glossary.dictionaries]


def _languages(glossary: stores.Glossary) -> list[str]:
    return sorted({tag for pair in _pairs(glossary) for tag in pair})


def _only_pair(glossary: stores.Glossary) -> _Pair:
    """Return the languages of a glossary of one pair. Raises InvalidRequest for another one."""
    if len(glossary.dictionaries) != 1:
        message = f"glossary {glossary.name} has {len(glossary.dictionaries)} pairs of languages, and must have one"
        raise InvalidRequest("name", message)
    return _pairs(glossary)[0]


async def _terms_of(config: google.GlossaryInputConfig, pair: _Pair) -> list[pb.Term]:
    """Return the terms of a data: address, or none without an address. Raises InvalidRequest.

    pair: languages of the terms, which a file of TMX names
    """
    data = _data_of(config)
    # A thread, because a glossary of megabytes would block the event loop for too long.
    return [] if data is None else await asyncio.to_thread(_read, data, pair)


async def _sets_of(config: google.GlossaryInputConfig, languages: Sequence[str]) -> list[TermSet]:
    """Return the sets of equivalent terms of a data: address; see `_terms_of`."""
    data = _data_of(config)
    return [] if data is None else await asyncio.to_thread(_read_sets, data, languages)


class _Data(NamedTuple):
    """A data: address. parameters: in lower case; kind: suffix of a file of its type."""

    content: str
    parameters: str
    kind: str

    def read(self) -> bytes:
        """Return the content. Raises InvalidRequest."""
        data = unquote_to_bytes(self.content)
        try:
            return base64.b64decode(data, validate=True) if self.parameters.endswith(";base64") else data
        except binascii.Error as error:
            raise InvalidRequest(INPUT_URI, f"{INPUT_URI} is no base64: {error}") from None


def _data_of(config: google.GlossaryInputConfig) -> _Data | None:
    """Return the data: address of a request, or None without one. Raises InvalidRequest."""
    address, field = config.gcs_source.input_uri, INPUT_URI
    if not address:
        return None
    match = _DATA.fullmatch(address)
    if match is None:
        message = f"{field} must be a data: address, such as data:text/csv,house%2CHaus, or the entries be created one "
        raise InvalidRequest(field, f"{message}by one: the server reads no storage; got {address[:SHOWN]!r}")
    kind = KINDS.get(match["type"].lower())
    if kind is None:
        expected = ", ".join(KINDS)
        raise InvalidRequest(field, f"{field} must be of the type {expected}, got {match['type'][:SHOWN]!r}")
    return _Data(match["content"], match["parameters"].lower(), kind)


def _read(data: _Data, pair: _Pair) -> list[pb.Term]:
    """Return the terms of an address. Raises InvalidRequest."""
    content = data.read()
    try:
        return [term.message() for term in read_terms(f"glossary.{data.kind}", *pair, content=content)]
    except LingonError as error:
        raise InvalidRequest(INPUT_URI, str(error)) from None


def _read_sets(data: _Data, languages: Sequence[str]) -> list[TermSet]:
    """Return the sets of an address. Raises InvalidRequest."""
    delimiter = {"csv": ",", "tsv": "\t"}.get(data.kind)
    if delimiter is None:
        raise InvalidRequest(INPUT_URI, f"{INPUT_URI} of sets of equivalent terms must be of the type text/csv")
    return joined(read_sets(data.read(), languages, INPUT_URI, delimiter=delimiter), INPUT_URI)


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
    except ValueError:
        raise _no_entry(name, field) from None
    assert match is not None
    return _glossary_name(match["glossary"], field), _Pair(source, target), _decoded(coded, name, field)


def _decoded(coded: str, name: str, field: str) -> str:
    """Return the text in the name of an entry. Raises InvalidRequest."""
    try:
        return base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode()
    except ValueError:
        raise _no_entry(name, field) from None


def _no_entry(name: str, field: str) -> InvalidRequest:
    return InvalidRequest(field, f"{field} must be the name of an entry in a reply, got {name[:SHOWN]!r}")


def _set_entry(name: _Name, terms: TermSet) -> google.GlossaryEntry:
    """Return the entry of a set, whose name has the term of its first language."""
    tags = sorted(terms)
    coded = base64.urlsafe_b64encode(terms[tags[0]].encode()).decode().rstrip("=")
    found = google.GlossaryEntry(name=f"{name}/glossaryEntries/{tags[0]}.{coded}")
    for tag in tags:
        found.terms_set.terms.add(language_code=tag, text=terms[tag])
    return found


def _set_entry_name(name: str) -> tuple[_Name, str, str] | None:
    """Return the glossary, and the language and the text of a term of a set, or None if it is no entry of sets."""
    match = _ENTRY.fullmatch(name)
    tag, _, coded = match["entry"].partition(".") if match else ("", "", "")
    if match is None or not coded or "." in coded:
        return None
    return _glossary_name(match["glossary"], "name"), tag, _decoded(coded, name, "name")


def _index_of_set(sets: Sequence[TermSet], name: _Name, tag: str, text: str) -> int:
    """Return the index of the set with a term of a language. Raises NotStored."""
    found = next((index for index, each in enumerate(sets) if each.get(tag) == text), None)
    if found is None:
        raise NotStored("glossary entry", name.name, f"glossary {name.name} has no entry for {text[:SHOWN]!r}")
    return found


def _set_of(entry: google.GlossaryEntry, glossary: stores.Glossary) -> TermSet:
    """Return the set of an entry. Raises InvalidRequest."""
    field, languages = "glossary_entry.terms_set", _languages(glossary)
    terms = [(tag_of(each.language_code, field), each.text.strip()) for each in entry.terms_set.terms]
    if len(dict(terms)) < max(2, len(terms)) or not all(text for _, text in terms):
        raise InvalidRequest(field, f"{field} must have the terms of two languages or more, one of each")
    if unknown := next((tag for tag, _ in terms if tag not in languages), None):
        known = ", ".join(languages)
        raise InvalidRequest(field, f"{field} must have languages of the glossary, {known}, got {unknown[:SHOWN]!r}")
    return dict(joined([dict(terms)], field)[0])


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
