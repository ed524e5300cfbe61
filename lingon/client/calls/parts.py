"""The parts in which the texts of an iterable are sent."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Any, NamedTuple

from lingon.client.values.options import TranslateOptions
from lingon.errors import SettingsError

TEXTS = 64  # of a part
IN_FLIGHT = 4  # parts; enough to keep the rows of an engine in use
SLOW = 0.05  # seconds after which a part is sent although it is not full: its texts come slowly


class Part(NamedTuple):
    """Texts of an iterable; first: the index of the first one in it; options: those of the call, for these texts."""

    first: int
    texts: list[str]
    options: TranslateOptions


class Collector:
    """Collects texts, each with its target prefix if there is one for each, until they are taken as a part."""

    def __init__(self, options: TranslateOptions) -> None:
        self._first, self._texts, self._begin, self._options = 0, list[str](), 0.0, options
        prefix = options.get("target_prefix")
        self._left: Iterator[Any] | None = None if prefix is None or isinstance(prefix, str) else iter(prefix)
        self._prefixes = list[str]()

    def add(self, text: Any) -> None:
        """Add a text. Raises SettingsError, which names its index, if it is no str, or if there is no prefix for it."""
        place = self._first + len(self._texts)
        if not isinstance(text, str):
            raise SettingsError(f"texts[{place}] must be a str, got {type(text).__name__}")
        if self._left is not None:
            prefix = next(self._left, None)
            if not isinstance(prefix, str):
                found = "there is no more" if prefix is None else f"got {type(prefix).__name__}"
                raise SettingsError(f"target_prefix must have a str for texts[{place}], {found}")
            self._prefixes.append(prefix)
        if not self._texts:
            self._begin = time.monotonic()
        self._texts.append(text)

    def end(self) -> None:
        """Raise SettingsError if there are more prefixes than texts."""
        if self._left is not None and next(self._left, None) is not None:
            raise SettingsError(
                f"target_prefix has more than {self._first + len(self._texts)} prefixes, one for each text"
            )

    @property
    def empty(self) -> bool:
        """Whether there is no text."""
        return not self._texts

    @property
    def full(self) -> bool:
        """Whether the texts are as many as a part has."""
        return len(self._texts) == TEXTS

    @property
    def seconds(self) -> float:
        """Seconds since the first text was added."""
        return time.monotonic() - self._begin

    def take(self) -> Part:
        """Return the texts, and begin a new part."""
        options = self._options.copy()
        if self._left is not None:
            options["target_prefix"] = self._prefixes
        part = Part(self._first, self._texts, options)
        self._first, self._texts, self._prefixes = self._first + len(part.texts), [], []
        return part


def parts_of(texts: Iterable[str], options: TranslateOptions) -> Iterator[Part]:
    """The parts of texts; an exception of the iterable is raised after those before it.

    After each text it is looked at whether a part that is not full ends, since its texts come slowly.
    """
    collector, longest = Collector(options), longest_part(options)
    try:
        for text in texts:
            collector.add(text)
            if collector.full or collector.seconds > longest:
                yield collector.take()
        collector.end()
    except Exception:
        if not collector.empty:
            yield collector.take()
        raise
    if not collector.empty:
        yield collector.take()


def longest_part(options: TranslateOptions) -> float:
    """Seconds after which a part is sent. A sampled one is always full, so that the same seed gives the same texts."""
    return SLOW if options.get("sampling") is None else float("inf")


def check_iterable(texts: Any, kinds: tuple[type, ...] = (Iterable,)) -> None:
    """Raise SettingsError if texts are no iterable, or a str, which is one of its letters."""
    if isinstance(texts, str | bytes) or not isinstance(texts, kinds):
        also = " or an asynchronous one" if AsyncIterable in kinds else ""
        raise SettingsError(f"texts must be an iterable of str{also}, got {type(texts).__name__}")
