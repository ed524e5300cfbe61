"""An exact cache of translations: a text that was translated before, with the same model and options, is not decoded.

It changes no answer, because a sentence translates the same alone as in a batch. (On a card, batches differ in the last
bits of scores. An answer from the cache is then one that the card has given.)
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lingon.errors import SettingsError
from lingon.translation.v1 import translation_pb2 as pb

MIB = 1 << 20
ENTRY_BYTES = 300  # bytes that an entry takes in addition to its result: 267 were measured, over 100,000 entries
DIGEST_BYTES = 32  # two texts then never have the same key, whoever chooses them


class Stored(NamedTuple):
    """An entry. model: the label of its model; result: a serialised TextResult."""

    model: str
    result: bytes

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return ENTRY_BYTES + len(self.result)


class TranslationCache:
    """The latest used results of texts, within a number of bytes. Models share it. Safe for any thread.

    It holds digests of texts, and results. Only whole successful answers are stored, see `Translator.translate`.

    size: bytes of the entries
    """

    def __init__(
        self,
        mebibytes: int,
        *,
        on_lookup: Callable[[int, int], object] = lambda hits, misses: None,
        on_change: Callable[[int, int], object] = lambda size, evicted: None,
    ) -> None:
        """mebibytes: bound of the entries; raises SettingsError below 1.

        on_lookup: called with the hits and the misses of a request
        on_change: called with the present bytes, and the entries that were evicted for newer ones
        """
        if mebibytes < 1:
            raise SettingsError(f"cache must be at least 1 MiB, got {mebibytes}")
        self._most, self._on_lookup, self._on_change = mebibytes * MIB, on_lookup, on_change
        self._entries: OrderedDict[bytes, Stored] = OrderedDict()  # the least recently used one first
        self._secret, self._lock = secrets.token_bytes(DIGEST_BYTES), threading.Lock()
        self.size = 0

    def keys(self, model: str, options: Sequence[bytes], texts: Sequence[str], prefixes: Sequence[str]) -> list[bytes]:
        """Return the key of each text as it was sent.

        model: all that identifies the model and decides its answers
        options: the serialised options of the request
        prefixes: the target prefix of each text, or an empty list
        """
        common = hashlib.blake2b(key=self._secret, digest_size=DIGEST_BYTES)
        for part in (model.encode(), *options):
            _add(common, part)
        keys = []
        for text, prefix in zip(texts, prefixes or [""] * len(texts), strict=True):
            own = common.copy()
            _add(own, text.encode())
            _add(own, prefix.encode())
            keys.append(own.digest())
        return keys

    def find(self, keys: Sequence[bytes]) -> dict[int, pb.TextResult]:
        """Return the results of the texts that are stored, by their index."""
        with self._lock:
            stored = {index: self._entries[key] for index, key in enumerate(keys) if key in self._entries}
            for index in stored:
                self._entries.move_to_end(keys[index])
        self._on_lookup(len(stored), len(keys) - len(stored))
        return {index: pb.TextResult.FromString(each.result) for index, each in stored.items()}

    def store(self, model: str, key: bytes, result: pb.TextResult) -> None:
        """Keep a result, and evict the least recently used ones beyond the bound; model: the label of its model."""
        entry, evicted = Stored(model, result.SerializeToString()), 0
        if entry.size > self._most:
            return
        with self._lock:
            self._remove(key)
            self._entries[key] = entry
            self.size += entry.size
            while self.size > self._most:
                self._remove(next(iter(self._entries)))
                evicted += 1
            size = self.size
        self._on_change(size, evicted)

    def drop(self, model: str) -> None:
        """Remove all results of the model with this label, because it is served no more.

        Results of a model that leaves the memory alone stay: its digest is a part of their keys.
        """
        with self._lock:
            for key in [key for key, entry in self._entries.items() if entry.model == model]:
                self._remove(key)
            size = self.size
        self._on_change(size, 0)

    def _remove(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry.size


def _add(digest: hashlib.blake2b, part: bytes) -> None:
    """Add a part with its length, so that no two sequences of parts have the same bytes."""
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)
