"""The verb `live`: translates words of a pipe as they arrive, or of a file, and writes captions of both languages."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.cli.backend import BackendOptions, open_translator
from lingon.cli.live_input import Given
from lingon.cli.live_terms import LiveTermOptions, MissedTerms
from lingon.cli.live_words import Paused, Written
from lingon.cli.options import SourceOption, TargetOption, with_option_groups
from lingon.cli.output import print_message
from lingon.errors import LingonError, SettingsError

if TYPE_CHECKING:
    from lingon.cli.live_captions import SaidWords, Writer
    from lingon.client.live import LiveCall
    from lingon.terms.term import Term


class PolicyChoice(StrEnum):
    """When text is agreed."""

    LOCAL_AGREEMENT = "local_agreement"
    WAIT_K = "wait_k"
    ALIGNMENT = "alignment"
    SENTENCES = "sentences"


@with_option_groups
def live(
    backend: BackendOptions,
    terms: LiveTermOptions,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="WebVTT (.vtt), SubRip (.srt), lines of JSON (.json, .jsonl) or text.",
            show_default="standard input, as it arrives",
        ),
    ] = None,
    source: SourceOption = None,
    target: TargetOption = None,
    policy: Annotated[
        PolicyChoice | None,
        typer.Option(
            help="When text is agreed, so that it never changes.",
            show_default="local_agreement; sentences with --terms, --glossary and --keep",
        ),
    ] = None,
    lag_words: Annotated[
        int | None,
        typer.Option(
            min=1, max=20, help="Lag of the policy: words, or updates of local_agreement.", show_default="its own"
        ),
    ] = None,
    pause_ms: Annotated[
        int | None,
        typer.Option(
            min=200,
            max=60_000,
            metavar="MILLISECONDS",
            help="Time without words, on the clock or between two words, that ends a sentence.",
            show_default="3000",
        ),
    ] = None,
    read: Annotated[
        Written | None,
        typer.Option(
            help="Form of the input: vtt, which SubRip (.srt) is read as too, lines of json with text, begin_ms and "
            "end_ms, or text.",
            show_default="as its first lines are",
        ),
    ] = None,
    write: Annotated[
        Written | None,
        typer.Option(
            help="Form of the output: vtt captions with a line of each language, a line of json for each update, or "
            "text.",
            show_default="text, on a terminal with what is tentative, else vtt",
        ),
    ] = None,
    pace: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Read the words at the speed of their times, 1 as they were spoken, 2 twice as fast.",
            show_default="as they arrive",
        ),
    ] = None,
) -> None:
    """Translate words while they are spoken: standard input or a file becomes captions of both languages.

    Agreed text is written at once and never changes.
    """
    given = Given.of(file, read)
    chosen, wanted = _policy(policy, terms), terms.read(source, target)
    with (
        open_translator(backend) as translator,
        translator.live(
            model=backend.server_model,
            source=source,
            target=target,
            policy=None if chosen is None else chosen.value,
            lag_words=lag_words,
            pause_ms=pause_ms,
            terms=wanted,
            glossaries=terms.listed.glossary,
            timeout=backend.timeout,
        ) as speaker,
    ):
        _translate(speaker, given, write, pause_ms or DEFAULT_PAUSE, pace, wanted)


DEFAULT_PAUSE = 3000  # milliseconds, as the server has it


def _policy(policy: PolicyChoice | None, terms: LiveTermOptions) -> PolicyChoice | None:
    """Return the policy, with which terms hold. Raises SettingsError for another one with terms."""
    if not terms.given:
        return policy
    if policy not in (None, PolicyChoice.SENTENCES):
        raise SettingsError(f"{terms.given} needs --policy sentences, got {policy}: a term may change a whole sentence")
    return PolicyChoice.SENTENCES


def _translate(
    speaker: LiveCall,
    given: Given,
    write: Written | None,
    pause_ms: int,
    pace: float | None,
    terms: Sequence[Term],
) -> None:
    """Send the words, and write the updates."""
    from lingon.cli.live_captions import SaidWords
    from lingon.client.live import is_unspaced

    begin = time.monotonic()
    said = SaidWords(lambda: int(1000 * (time.monotonic() - begin)))
    feeder = _Feeder(speaker, said, given, pause_ms, pace)
    blank = "" if is_unspaced(speaker.ready.source_language) else " "
    writer, missed = _writer(write, said, blank), MissedTerms(terms, speaker.ready, said, blank)
    feeder.start()
    try:
        for update in speaker:
            writer.write(update)
            for message in missed.read(update):
                print_message(message)
    except LingonError:
        feeder.check()  # its error is the cause, if it has one
        raise
    finally:
        writer.close()
    feeder.check()


def _writer(write: Written | None, said: SaidWords, blank: str) -> Writer:
    """Return the writer of a form; blank: what is between two words of the source."""
    from lingon.cli import live_captions as forms

    if write is None and sys.stdout.isatty():
        return forms.TerminalWriter(said, blank)
    if write is Written.JSON:
        return forms.JsonWriter(sys.stdout)
    if write is Written.TEXT:
        return forms.TextWriter(sys.stdout)
    return forms.VttWriter(sys.stdout, forms.Captions(said, blank))


class _Feeder(threading.Thread):
    """Sends words as they arrive. It ends with the process, because a read cannot be ended."""

    def __init__(self, speaker: LiveCall, said: SaidWords, given: Given, pause_ms: int, pace: float | None) -> None:
        super().__init__(name="words", daemon=True)
        self._speaker, self._said, self._given = speaker, said, given
        self._pause_ms, self._pace, self._begin = pause_ms, pace, time.monotonic()
        self._last_ms = 0  # when the last word ended
        self._error: Exception | None = None

    def check(self) -> None:
        """Raise the error of the input, if there is one."""
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Send all words, and then the end."""
        try:
            self._send()
        except Exception as error:
            self._error = error
        with suppress(LingonError):  # if the call has ended, the iterator of its updates raises why
            self._speaker.end()

    def _send(self) -> None:
        for step in self._given.steps(self._speaker.ready.source_language):
            if isinstance(step, Paused):
                self._speaker.pause()
                continue
            if step.first is not None and step.first > self._said.count:
                raise LingonError(f"from must be 0 to {self._said.count}, the number of words so far, got {step.first}")
            first = step.first
            for part in [step.words] if self._pace is None or not step.words else [(each,) for each in step.words]:
                if part:
                    self._wait_for(part[0].begin_ms, part[-1].end_ms)
                self._speaker.revise(self._said.add(part, first), part)
                first = None

    def _wait_for(self, begin_ms: int, end_ms: int) -> None:
        """Wait until words are spoken, if the pace says so, and send the pause before them, if there is one."""
        if not end_ms:
            return
        if self._last_ms and begin_ms - self._last_ms >= self._pause_ms:
            self._speaker.pause()
        self._last_ms = end_ms
        if self._pace is not None:
            time.sleep(max(self._begin + end_ms / 1000 / self._pace - time.monotonic(), 0.0))
