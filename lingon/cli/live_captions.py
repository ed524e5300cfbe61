"""The output of `lingon live`: captions of both languages as WebVTT, updates as lines of JSON, or text."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Protocol, TextIO

from lingon.client.results import LiveUpdate, LiveWord

LINE = 42  # characters of agreed text from which a caption is written inside a sentence, as broadcasters limit a line


class SaidWords:
    """The words of a speaker as they were sent, with the revisions, and when those without times came.

    clock: milliseconds since the speaker began
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._words, self._clock = list[LiveWord](), clock

    def add(self, words: Iterable[LiveWord], first: int | None) -> int:
        """Append words, or replace those from number `first` on, and return the number of the first one."""
        begin, now = len(self._words) if first is None else first, self._clock()
        self._words[begin:] = [each if each.end_ms else LiveWord(each.text, now, now) for each in words]
        return begin

    def text(self, begin: int, end: int, blank: str) -> str:
        """Return the words from one number to another one; blank: what is between two words."""
        return blank.join(each.text for each in self._words[begin:end])

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Return when these words were spoken, in milliseconds."""
        words = self._words[begin:end]
        return (words[0].begin_ms, max(each.end_ms for each in words)) if words else (0, 0)

    @property
    def count(self) -> int:
        """The number of words."""
        return len(self._words)


@dataclass(frozen=True, slots=True)
class Caption:
    """A part of a translation with the words that it translates, and when they were spoken, in milliseconds."""

    begin_ms: int
    end_ms: int
    source: str
    target: str


class Captions:
    """Cuts agreed text into captions: at the end of a sentence, and before that when it fills a line.

    Captions do not overlap, and each has words of its own.
    """

    def __init__(self, said: SaidWords, blank: str) -> None:
        """blank: what is between two words of the source."""
        self._said, self._blank = said, blank
        self._text, self._begin, self._end_ms = "", 0, 0

    def read(self, update: LiveUpdate) -> Caption | None:
        """Return the caption that an update completes, if it does."""
        self._text += update.agreed
        end = update.words if update.is_complete else update.agreed_words
        is_full = len(self._text.strip()) >= LINE and end > self._begin
        if not self._text.strip() or not (update.is_complete or is_full):
            return None
        begin_ms, end_ms = self._said.span(self._begin, end)
        begin_ms = max(begin_ms, self._end_ms)
        source = self._said.text(self._begin, end, self._blank)
        caption = Caption(begin_ms, max(end_ms, begin_ms + 1), source, self._text.strip())
        self._text, self._begin, self._end_ms = "", max(end, self._begin), caption.end_ms
        return caption


class Writer(Protocol):
    """A form of the output."""

    def write(self, update: LiveUpdate) -> None:
        """Write an update."""

    def close(self) -> None:
        """End the output."""


class VttWriter:
    """Captions as WebVTT: a cue has a line of the source and a line of its translation. Each is flushed at once."""

    def __init__(self, stream: TextIO, captions: Captions) -> None:
        self._stream, self._captions = stream, captions
        stream.write("WEBVTT\n\n")
        stream.flush()

    def write(self, update: LiveUpdate) -> None:
        """See Writer."""
        caption = self._captions.read(update)
        if caption is not None:
            lines = "\n".join(html.escape(each, quote=False) for each in (caption.source, caption.target) if each)
            self._stream.write(f"{_time(caption.begin_ms)} --> {_time(caption.end_ms)}\n{lines}\n\n")
            self._stream.flush()

    def close(self) -> None:
        """See Writer."""


def _time(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:03}"


class JsonWriter:
    """Each update as a line of JSON, with the fields of lingon.LiveUpdate."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, update: LiveUpdate) -> None:
        """See Writer."""
        self._stream.write(json.dumps(asdict(update), ensure_ascii=False) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """See Writer."""


class TextWriter:
    """Agreed text as it comes, each sentence on a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_open = stream, False

    def write(self, update: LiveUpdate) -> None:
        """See Writer."""
        text = update.agreed if self._is_open else update.agreed.lstrip()
        self._is_open = self._is_open or bool(text)
        self._stream.write(text)
        if update.is_complete and self._is_open:
            self._stream.write("\n")
            self._is_open = False
        self._stream.flush()

    def close(self) -> None:
        """See Writer."""
        if self._is_open:
            self._stream.write("\n")
            self._stream.flush()


class TerminalWriter:
    """A terminal: the source of the open sentence, its agreed text, and dimmed the rest, which is rewritten."""

    def __init__(self, said: SaidWords, blank: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._said, self._blank, self._agreed = said, blank, ""
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def write(self, update: LiveUpdate) -> None:
        """See Writer."""
        from rich.text import Text

        self._agreed += update.agreed
        source = self._said.text(update.first_word, update.words, self._blank)
        target = Text.assemble(self._agreed.strip(), (update.tentative, "dim"))
        shown = Text.assemble((source, "italic"), "\n", target)
        if not update.is_complete:
            self._live.update(shown, refresh=True)
            return
        self._agreed = ""
        self._live.update(Text(), refresh=True)  # first, because what is shown is drawn again after what is printed
        if source:
            self._console.print(shown)

    def close(self) -> None:
        """See Writer."""
        self._live.stop()
