"""The glossaries of a server: stored by owner and name, listed, read, removed, and found for a translation."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from lingon.errors import (
    InvalidRequest,
    NotStored,
    StoredDamaged,
    StoreFull,
    Unsupported,
)
from lingon.files import remove_file, replacing_file
from lingon.language_tags import canonical, is_same_language, is_same_tag
from lingon.serving.settings import GLOSSARY_BYTES
from lingon.serving.stores.changes import (
    check_bytes,
    check_earlier,
    check_label,
    check_new,
    not_stored,
    now,
    version_after,
)
from lingon.serving.stores.data_dir import DataDir
from lingon.serving.stores.glossary_file import (
    SUFFIX,
    Dictionary,
    GlossaryFile,
    Header,
    open_glossary,
    write_glossary,
)
from lingon.serving.stores.loaded import Loaded, stamp_of
from lingon.serving.stores.messages_file import Spool
from lingon.serving.stores.owners import PRIVATE_FILE, OwnerFolder, check_name, disk_errors, file_name, name_of
from lingon.terms.matcher import Matcher
from lingon.terms.stems import has_stems
from lingon.terms.term import Term, TermError, check_terms, sought
from lingon.translation.v1 import stores_pb2 as pb
from lingon.translation.v1 import translation_pb2

KIND = "glossaries"  # name of the folder
DICTIONARY_BYTES = 64 << 20  # bytes of the terms of one pair, which are in memory at once while they are checked
MOST_DICTIONARIES = 1000  # pairs of languages of a glossary
NONE_BYTES = 256  # bytes of the answer that a glossary has no terms for a pair

Pair = tuple[str, str]


class GlossaryStore:
    """The glossaries of all owners. Belongs to the event loop.

    Its methods take the caller of a call, see `owner_of`. Without a folder all raise Unsupported.
    """

    def __init__(self, data_dir: DataDir | None, matcher_bytes: int = GLOSSARY_BYTES) -> None:
        """matcher_bytes: of all matchers that are kept in memory."""
        self._data_dir = data_dir
        self._matchers = None if data_dir is None else Loaded[Matcher | None](data_dir, matcher_bytes)

    @property
    def loaded_bytes(self) -> int:
        """Memory of the matchers that are kept."""
        return 0 if self._matchers is None else self._matchers.size

    async def put(
        self, caller: str, header: pb.PutGlossaryHeader, parts: AsyncIterator[Sequence[translation_pb2.Term]]
    ) -> pb.Glossary:
        """Store terms for a pair of languages as a whole, and return the glossary.

        parts: yields the terms. Raises InvalidRequest, AlreadyStored, StoredVersionChanged, StoreFull or DiskFull
        """
        data_dir, name, pair = self._opened(), check_name(header.name, "header.name"), _pair(header)
        check_label(header.label)
        owner = data_dir.owner(caller)
        async with data_dir.receiving(caller):
            # Before the terms arrive, which may be long. It is checked again when they are stored.
            await data_dir.run(partial(self._check, owner, header))
            async with data_dir.spool(owner) as spool:
                count = 0
                async for terms in parts:
                    count += len(terms)
                    self._check_count(name, pair, count)
                    await data_dir.run(partial(_append, spool, terms))
                return await data_dir.change(caller, partial(self._store, owner, header, pair, spool))

    async def get(self, caller: str, name: str) -> pb.Glossary:
        """Return a glossary without its terms. Raises NotStored."""
        path = _path(self._opened().owner(caller), check_name(name, "name"))
        return await self._opened().run(lambda: _header(path, name).message())

    async def all(self, caller: str) -> list[pb.Glossary]:
        """Return all glossaries of the owner without their terms, sorted by name. A damaged one has its name alone."""
        owner = self._opened().owner(caller)
        return await self._opened().run(lambda: list(_all(owner)))

    async def read(self, caller: str, name: str, source: str, target: str) -> AsyncGenerator[pb.TermList, None]:
        """Yield the terms of a pair of languages in their order. Raises NotStored or StoredDamaged.

        They are those of one version, even if the glossary is changed meanwhile.
        """
        data_dir = self._opened()
        path = _path(data_dir.owner(caller), check_name(name, "name"))
        messages = _read(path, name, _tags(source, target))
        while (message := await data_dir.run(lambda: next(messages, None))) is not None:
            yield message

    async def delete(self, caller: str, name: str, source: str = "", target: str = "") -> None:
        """Remove a glossary, or its terms for one pair of languages. Raises NotStored."""
        data_dir, owner = self._opened(), self._opened().owner(caller)
        check_name(name, "name")
        if bool(source) != bool(target):
            missing = "target" if source else "source"
            raise InvalidRequest(f"{missing}_language_code", "both languages must be set, or none")
        if source:
            await data_dir.change(caller, partial(_remove_pair, owner, name, _tags(source, target)))
        else:
            await data_dir.change(caller, partial(_remove, owner, name))

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> list[tuple[str, Matcher]]:
        """Return the glossaries that have terms for a translation, in the order of the names.

        A dictionary serves languages with its primary subtags; one with the same tags comes first. A glossary
        without one is left out. A change by any process is seen by the next call. Raises NotStored.

        source, target: languages of the translation
        """
        if not names:
            return []
        owner, found = self._opened().owner(caller), list[tuple[str, Matcher]]()
        for index, name in enumerate(names):
            path = _path(owner, check_name(name, f"glossaries[{index}]"))
            stamp = stamp_of(path)
            if stamp is None:
                raise not_stored("glossary", name)
            assert self._matchers is not None, "there is a folder"
            load = partial(_load, path, name, source, target)
            matcher = await self._matchers.get((path, source, target), stamp, load)
            if matcher is not None:
                found.append((name, matcher))
        return found

    def _opened(self) -> DataDir:
        """Return the folder. Raises Unsupported if there is none."""
        if self._data_dir is None:
            raise Unsupported("this server keeps no glossaries; start it with --data-dir")
        return self._data_dir

    def _check_count(self, name: str, pair: Pair, count: int) -> None:
        most = self._opened().limits.max_glossary_entries
        if count > most:
            raise StoreFull(f"glossary {name}: {count:,} terms from {pair[0]} to {pair[1]}; at most {most:,} are kept")

    def _check(self, owner: OwnerFolder, wanted: pb.PutGlossaryHeader) -> Header | None:
        """Return the header of the glossary that is to be changed, or None for a new one. Raises what refuses it."""
        path = _path(owner, wanted.name)
        try:
            header = _header(path, wanted.name)
        except NotStored:
            check_new("glossary", wanted, sum(1 for _ in _files(owner)), self._opened().limits.max_glossaries)
            return None
        check_earlier("glossary", wanted, header.version)
        return header

    def _store(self, owner: OwnerFolder, wanted: pb.PutGlossaryHeader, pair: Pair, spool: Spool) -> pb.Glossary:
        """Store terms that have arrived. Blocks."""
        with owner.changing(), ExitStack() as opened:
            before = self._check(owner, wanted)
            path = _path(owner, wanted.name)
            earlier = None if before is None else opened.enter_context(open_glossary(path, wanted.name))
            terms = _checked(spool, pair[0])
            old = earlier.header.dictionary(*pair) if earlier is not None else None
            if wanted.merge and earlier is not None and old is not None:
                terms = merged(earlier.terms(old), terms)
                self._check_count(wanted.name, pair, len(terms))
            header = _next_header(before, wanted.name, wanted.label)
            if old is None and before is not None and len(before.dictionaries) >= MOST_DICTIONARIES:
                raise StoreFull(
                    f"glossary {wanted.name} has {MOST_DICTIONARIES:,} pairs of languages, which are the most"
                )
            check_size = partial(self._check_size, owner, path)
            return _write(path, header, earlier, pair, terms, check_size).message()

    def _check_size(self, owner: OwnerFolder, path: Path, new: int) -> None:
        """Raise StoreFull if a file of so many bytes in place of one makes the owner have too much."""
        stamp = stamp_of(path)
        check_bytes(owner, 0 if stamp is None else stamp.size, new, self._opened().limits.max_stored_bytes)


def merged(stored: Iterable[Term], new: Iterable[Term]) -> list[Term]:
    """Return stored terms and new ones; a new one takes the place of the stored one with the same source."""
    terms = {sought(term): term for term in stored}
    terms.update({sought(term): term for term in new})
    return list(terms.values())


def _pair(header: pb.PutGlossaryHeader) -> Pair:
    """Return the canonical languages of a header. Raises InvalidRequest."""
    return (
        canonical(header.source_language_code, "header.source_language_code"),
        canonical(header.target_language_code, "header.target_language_code"),
    )


def _tags(source: str, target: str) -> Pair:
    return canonical(source, "source_language_code"), canonical(target, "target_language_code")


def _path(owner: OwnerFolder, name: str) -> Path:
    return owner.folder(KIND) / f"{file_name(name)}{SUFFIX}"


def _files(owner: OwnerFolder) -> Iterator[Path]:
    return owner.files(KIND, SUFFIX)


def _header(path: Path, name: str) -> Header:
    with open_glossary(path, name) as file:
        return file.header


def _all(owner: OwnerFolder) -> Iterator[pb.Glossary]:
    """Yield all glossaries, sorted by name."""
    for name in sorted(name_of(path.name.removesuffix(SUFFIX)) for path in _files(owner)):
        try:
            yield _header(_path(owner, name), name).message()
        except NotStored:  # removed meanwhile
            continue
        except StoredDamaged:
            yield pb.Glossary(name=name)


def _append(spool: Spool, terms: Sequence[translation_pb2.Term]) -> None:
    """Add terms to those that have arrived. Raises StoreFull or DiskFull."""
    with disk_errors():
        spool.append(pb.TermList(terms=terms))
    if spool.size > DICTIONARY_BYTES:
        raise StoreFull(f"the terms have more than {DICTIONARY_BYTES:,} bytes, which are the most for one pair")


def _checked(spool: Spool, language: str) -> list[Term]:
    """Return the terms that have arrived. Raises InvalidRequest, which names the entries by their numbers.

    language: of their sources
    """
    try:
        return check_terms(_arrived(spool, language))
    except TermError as error:
        raise InvalidRequest(f"terms[{error.number - 1}]", str(error)) from None


def _arrived(spool: Spool, language: str) -> Iterator[Term]:
    messages = (message for part in spool.messages(pb.TermList) for message in part.terms)
    for number, message in enumerate(messages, start=1):
        if message.stems and not has_stems(language):
            raise TermError(number, f"there are no stems of words in {language}; see Term.stems")
        yield Term.of(message)


def _next_header(before: Header | None, name: str, label: str) -> Header:
    """Return the header of the next version, without dictionaries."""
    if before is None:
        return Header(name, label, version_after(0), now(), now(), ())
    return Header(name, label or before.label, version_after(before.version), before.created, now(), ())


def _write(
    path: Path,
    header: Header,
    earlier: GlossaryFile | None,
    pair: Pair,
    terms: Sequence[Term] | None,
    check_size: Callable[[int], None],
) -> Header:
    """Replace the file of a glossary; check_size: raises StoreFull for its bytes. The other parameters are those of
    `write_glossary`.
    """
    with replacing_file(path, PRIVATE_FILE) as file:
        written = write_glossary(file, header, earlier, pair, terms)
        check_size(file.tell())
        file.flush()
        # Two versions never have the same stamp, even if the clock of the file system is coarse.
        os.utime(file.fileno(), ns=(header.version * 1_000_000,) * 2)
    return written


def _read(path: Path, name: str, pair: Pair) -> Iterator[pb.TermList]:
    with open_glossary(path, name) as file:
        yield from file.messages(_dictionary(file.header, pair))


def _dictionary(header: Header, pair: Pair) -> Dictionary:
    """Return the dictionary of a pair. Raises NotStored."""
    found = header.dictionary(*pair)
    if found is None:
        raise NotStored("glossary", header.name, f"glossary {header.name} has no terms from {pair[0]} to {pair[1]}")
    return found


def _remove(owner: OwnerFolder, name: str) -> None:
    with owner.changing():
        try:
            remove_file(_path(owner, name))
        except FileNotFoundError:
            raise not_stored("glossary", name) from None


def _remove_pair(owner: OwnerFolder, name: str, pair: Pair) -> None:
    path = _path(owner, name)
    with owner.changing(), open_glossary(path, name) as earlier:
        _dictionary(earlier.header, pair)
        header = _next_header(earlier.header, name, "")
        _write(path, header, earlier, pair, None, lambda size: None)


def _load(path: Path, name: str, source: str, target: str) -> tuple[Matcher | None, int]:
    """Return the matcher of a glossary, None if it has no terms for the languages, and the bytes of the matcher."""
    with open_glossary(path, name) as file:
        found = nearest(file.header.dictionaries, source, target)
        if found is None or not found.terms:
            return None, NONE_BYTES
        matcher = Matcher(list(file.terms(found)), found.source)
    return matcher, matcher.size_bytes


def nearest(dictionaries: Iterable[Dictionary], source: str, target: str) -> Dictionary | None:
    """Return the dictionary that serves a translation best: both tags the same, then that of the target, then that of
    the source, then any with the same languages. None if there is none.
    """
    serving = (
        each for each in dictionaries if is_same_language(each.source, source) and is_same_language(each.target, target)
    )

    def differences(each: Dictionary) -> tuple[int, Pair]:
        same_source, same_target = is_same_tag(each.source, source), is_same_tag(each.target, target)
        return 2 * (not same_target) + (not same_source), each.pair

    return min(serving, key=differences, default=None)
