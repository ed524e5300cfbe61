"""The glossaries of a server: stored by owner and name, listed, read, removed, and found for a translation."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from lingon.errors import InvalidRequest, NotStored, StoreFull
from lingon.files import replacing_file
from lingon.language_tags import canonical, is_same_language, is_same_tag
from lingon.serving.settings import GLOSSARY_BYTES
from lingon.serving.stores.data_dir import DataDir, StoreLimits
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
from lingon.serving.stores.owners import PRIVATE_FILE, OwnerFolder, check_name, disk_errors, not_stored
from lingon.serving.stores.store import Store, check_label, next_version
from lingon.terms.matcher import Matcher
from lingon.terms.stems import has_stems
from lingon.terms.term import Term, TermError, check_terms, sought
from lingon.translation.v1 import stores_pb2 as pb

DICTIONARY_BYTES = 64 << 20  # bytes of the terms of one pair, which are in memory at once while they are checked
MOST_DICTIONARIES = 1000  # pairs of languages of a glossary
NONE_BYTES = 256  # bytes of the answer that a glossary has no terms for a pair

Pair = tuple[str, str]


class GlossaryStore(Store[Header, pb.Glossary]):
    """The glossaries of all owners."""

    kind, folder, suffix, several = "glossary", "glossaries", SUFFIX, "glossaries"
    message_type = pb.Glossary

    def __init__(self, data_dir: DataDir | None, matcher_bytes: int = GLOSSARY_BYTES) -> None:
        """matcher_bytes: of all matchers that are kept in memory."""
        super().__init__(data_dir)
        self._matchers = None if data_dir is None else Loaded[Matcher | None](data_dir, matcher_bytes)

    @property
    def loaded_bytes(self) -> int:
        """Memory of the matchers that are kept."""
        return 0 if self._matchers is None else self._matchers.size

    async def put(
        self, caller: str, header: pb.PutGlossaryHeader, parts: AsyncIterator[pb.PutGlossaryRequest]
    ) -> pb.Glossary:
        """Store terms for pairs of languages as a whole, and return the glossary.

        parts: yields messages with the terms
        Raises InvalidRequest, AlreadyStored, StoredVersionChanged, StoreFull or DiskFull
        """
        limits = self._opened().limits
        check_name(header.name, "header.name")
        arriving = _Arriving(header, limits)
        check_label(header.label)
        check = partial(self._before, wanted=header, most=limits.max_glossaries)
        return await self._receive(caller, parts, check, arriving.append, partial(self._store, header, arriving.pairs))

    async def read(self, caller: str, name: str, source: str, target: str) -> AsyncGenerator[pb.TermList, None]:
        """Yield the terms of a pair of languages in their order. Raises NotStored or StoredDamaged.

        They are those of one version, even if the glossary is changed meanwhile.
        """
        data_dir = self._opened()
        path = self._path(data_dir.owner(caller), check_name(name, "name"))
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
            await data_dir.change(caller, partial(self._remove_pair, owner, name, _tags(source, target)))
        else:
            await data_dir.change(caller, partial(self._remove, owner, name))

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
            path = self._path(owner, check_name(name, f"glossaries[{index}]"))
            stamp = stamp_of(path)
            if stamp is None:
                raise not_stored("glossary", name)
            assert self._matchers is not None, "there is a folder"
            load = partial(_load, path, name, source, target)
            matcher = await self._matchers.get((path, source, target), stamp, load)
            if matcher is not None:
                found.append((name, matcher))
        return found

    def _header(self, path: Path, name: str) -> Header:
        with open_glossary(path, name) as file:
            return file.header

    def _store(
        self, wanted: pb.PutGlossaryHeader, pairs: Sequence[Pair], owner: OwnerFolder, spool: Spool
    ) -> pb.Glossary:
        """Store terms that have arrived, of pairs in their order. Blocks."""
        with owner.changing(), ExitStack() as opened:
            before = self._before(owner, wanted, self._opened().limits.max_glossaries)
            path = self._path(owner, wanted.name)
            earlier = None if before is None else opened.enter_context(open_glossary(path, wanted.name))
            stored = () if before is None else before.dictionaries
            count = len({*pairs, *(each.pair for each in stored)})
            _check_pairs(wanted.name, count)
            changes = self._changes(wanted, pairs, spool, earlier)
            header = Header(name=wanted.name, dictionaries=(), **next_version(before, wanted.label))
            return _write(path, header, earlier, changes, partial(self._check_size, owner, path)).message()

    def _remove_pair(self, owner: OwnerFolder, name: str, pair: Pair) -> None:
        path = self._path(owner, name)
        with owner.changing(), open_glossary(path, name) as earlier:
            _dictionary(earlier.header, pair)
            header = Header(name=name, dictionaries=(), **next_version(earlier.header, ""))
            _write(path, header, earlier, [(pair, None)], lambda size: None)

    def _changes(
        self, wanted: pb.PutGlossaryHeader, pairs: Sequence[Pair], spool: Spool, earlier: GlossaryFile | None
    ) -> Iterator[tuple[Pair, list[Term]]]:
        """Yield the terms of each pair, which are then in memory. Raises InvalidRequest or StoreFull."""
        for pair, messages in zip(pairs, _arrived(spool), strict=True):
            terms = _checked(messages, pair, several=len(pairs) > 1)
            old = earlier.header.dictionary(*pair) if earlier is not None else None
            if wanted.merge and earlier is not None and old is not None:
                terms = merged(earlier.terms(old), terms)
                _check_count(wanted.name, pair, len(terms), self._opened().limits.max_glossary_entries)
            yield pair, terms

    def _check_size(self, owner: OwnerFolder, path: Path, new: int) -> None:
        """Raise StoreFull if a file of so many bytes in place of one makes the owner have too much."""
        stamp = stamp_of(path)
        self._check_bytes(owner, 0 if stamp is None else stamp.size, new)


class _Arriving:
    """The pairs of a change while its messages arrive."""

    def __init__(self, header: pb.PutGlossaryHeader, limits: StoreLimits) -> None:
        """Raises InvalidRequest for the languages of the header."""
        self.pairs = [_pair(header, "header")]
        self._name, self._limits = header.name, limits
        self._terms, self._bytes_before = 0, 0  # of the last pair; of all before it

    def append(self, spool: Spool, part: pb.PutGlossaryRequest) -> None:
        """Add a message to those that have arrived.

        Raises InvalidRequest for languages that came before, StoreFull for more terms of a pair or more bytes, of the
        pair or together, than are kept, and DiskFull.
        """
        if part.HasField("pair"):
            pair = _pair(part.pair, "pair")
            if pair in self.pairs:
                raise InvalidRequest("pair", f"terms from {pair[0]} to {pair[1]} came before; a pair may come once")
            self.pairs.append(pair)
            _check_pairs(self._name, len(self.pairs))
            self._terms, self._bytes_before = 0, spool.size
        self._terms += len(part.terms)
        _check_count(self._name, self.pairs[-1], self._terms, self._limits.max_glossary_entries)
        with disk_errors():
            spool.append(part)
        if spool.size - self._bytes_before > DICTIONARY_BYTES:
            raise StoreFull(f"the terms have more than {DICTIONARY_BYTES:,} bytes, which are the most for one pair")
        if spool.size > (most := self._limits.max_stored_bytes):
            raise StoreFull(f"the terms have more than {most:,} bytes, and the server keeps {most:,} for you")


def _check_pairs(name: str, count: int) -> None:
    """Raise StoreFull for more pairs of languages than a glossary may have."""
    if count > MOST_DICTIONARIES:
        raise StoreFull(f"glossary {name}: {count:,} pairs of languages; at most {MOST_DICTIONARIES:,} are kept")


def _check_count(name: str, pair: Pair, count: int, most: int) -> None:
    """Raise StoreFull for more terms of a pair than are kept."""
    if count > most:
        raise StoreFull(f"glossary {name}: {count:,} terms from {pair[0]} to {pair[1]}; at most {most:,} are kept")


def merged(stored: Iterable[Term], new: Iterable[Term]) -> list[Term]:
    """Return stored terms and new ones; a new one takes the place of the stored one with the same source."""
    terms = {sought(term): term for term in stored}
    terms.update({sought(term): term for term in new})
    return list(terms.values())


def _pair(message: pb.PutGlossaryHeader | pb.GlossaryPair, field: str) -> Pair:
    """Return the canonical languages of a field. Raises InvalidRequest."""
    return (
        canonical(message.source_language_code, f"{field}.source_language_code"),
        canonical(message.target_language_code, f"{field}.target_language_code"),
    )


def _tags(source: str, target: str) -> Pair:
    return canonical(source, "source_language_code"), canonical(target, "target_language_code")


def _arrived(spool: Spool) -> Iterator[list[Term]]:
    """Yield the terms of each pair that have arrived."""
    terms = list[Term]()
    for part in spool.messages(pb.PutGlossaryRequest):
        if part.HasField("pair"):
            yield terms
            terms = []
        terms += map(Term.of, part.terms)
    yield terms


def _checked(terms: list[Term], pair: Pair, *, several: bool) -> list[Term]:
    """Return the terms of a pair. Raises InvalidRequest, which names the entries by their numbers.

    several: whether the change has several pairs
    """
    try:
        for number, term in enumerate(terms, start=1):
            if term.stems and not has_stems(pair[0]):
                raise TermError(number, f"there are no stems of words in {pair[0]}; see Term.stems")
        return check_terms(terms)
    except TermError as error:
        place = f"from {pair[0]} to {pair[1]}: " if several else ""
        raise InvalidRequest(f"terms[{error.number - 1}]", f"{place}{error}") from None


def _write(
    path: Path,
    header: Header,
    earlier: GlossaryFile | None,
    changes: Iterable[tuple[Pair, Sequence[Term] | None]],
    check_size: Callable[[int], None],
) -> Header:
    """Replace the file of a glossary; check_size: raises StoreFull for its bytes. The other parameters are those of
    `write_glossary`.
    """
    with replacing_file(path, PRIVATE_FILE) as file:
        written = write_glossary(file, header, earlier, changes)
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
