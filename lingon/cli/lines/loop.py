"""The loop of the verbs that work line by line: lines in, batches through a translator, lines out, errors by line."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from lingon.cli.backend import Translator, open_translator
from lingon.cli.lines.batching import batches, in_order
from lingon.cli.lines.format import Columns, n_best_lines, plain_line, score_json, score_line, translation_json
from lingon.cli.lines.input import Input, Item, size_of
from lingon.cli.lines.output import print_message, writing
from lingon.cli.lines.progress import progress_bar, wants_progress
from lingon.cli.lines.wording import reworded
from lingon.cli.options.backend import BackendOptions
from lingon.client.values.options import ScoreOptions, TranslateOptions
from lingon.client.values.results import ScoreResult, TextResult
from lingon.errors import LingonError, ServerError, SettingsError
from lingon.source_language import AUTO
from lingon.text import normalise

IN_FLIGHT = 4  # batches in flight: enough to keep the server's batch full while one is printed
LINES_NAMED = 10  # lines that a warning names before it only counts the others

Result = TypeVar("Result", TextResult, ScoreResult)


class Work(Protocol[Item, Result]):
    """What a verb does with its lines."""

    def answer(self, translator: Translator, numbers: list[int], items: list[Item]) -> list[Result]:
        """The results of items, whose line numbers are numbers; called on several threads."""

    def render(self, number: int, item: Item, result: Result) -> str | None:
        """The output of a result, without its last line feed; None if it has none."""

    def summary(self) -> str:
        """The output after the last result."""


@dataclass(frozen=True, slots=True)
class TranslateWork:
    """Translates lines; a blank line gives a blank line, and so does one that cannot be translated."""

    options: TranslateOptions
    columns: Columns
    as_json: bool

    def answer(self, translator: Translator, numbers: list[int], items: list[str]) -> list[TextResult]:
        """The translations; the line number is added to the seed, so that no two batches draw the same numbers."""
        options = self.options.copy()
        sampling = options.get("sampling")
        if sampling is not None and numbers[0] > 1:
            options["sampling"] = replace(sampling, seed=((sampling.seed or 0) + numbers[0] - 1) % 2**64)
        blank = [not normalise(line) for line in items]
        return answer_non_blank(items, blank, lambda lines: translator.translate(lines, **options), TextResult())

    def render(self, number: int, item: str, result: TextResult) -> str:
        """One line, or as many lines as there are translations in an n-best list."""
        if self.as_json:
            return translation_json(number, item, result)
        if self.options.get("format") in ("html", "xml"):
            return self._document(result.text) if result.translations else ""
        if several_of(self.options) > 1:
            return n_best_lines(number, result, self.columns)
        return plain_line(result, self.columns)

    def _document(self, text: str) -> str:
        """Return a document with markup; a page says the language that it is translated to, if that is known."""
        from lingon.documents.languages import Languages, page_in

        if self.options.get("format") != "html" or not self.options.get("target"):
            return text
        source = self.options.get("source") or ""
        return page_in(text, Languages("" if source == AUTO else source, self.options.get("target") or ""))

    def summary(self) -> str:
        """Nothing."""
        return ""


def several_of(options: TranslateOptions) -> int:
    """The most translations of a text, as far as the options say it."""
    return max(options.get("num_hypotheses") or 1, options.get("alternatives") or 1)


def check_document_options(columns: Columns, translations: int, *, as_json: bool) -> None:
    """Raise SettingsError for options that add to the line of a translation, which a document has not."""
    if not as_json and (columns != Columns() or translations > 1):
        raise SettingsError(
            "--format html and xml print documents; add --json for --scores, --tokens, --alignment, --num-hypotheses "
            "and --alternatives"
        )


@dataclass(frozen=True, slots=True)
class ScoreWork:
    """Scores pairs: the log-probability of each target."""

    options: ScoreOptions
    columns: Columns
    as_json: bool

    def answer(self, translator: Translator, numbers: list[int], items: list[tuple[str, str]]) -> list[ScoreResult]:
        """The scores; a pair of two empty texts is not sent."""
        blank = [not any(normalise(text) for text in pair) for pair in items]
        return answer_non_blank(items, blank, lambda pairs: translator.score(pairs, **self.options), ScoreResult())

    def render(self, number: int, item: tuple[str, str], result: ScoreResult) -> str:
        """One line."""
        if self.as_json:
            return score_json(number, item, result)
        return score_line(result, self.columns) if result.tokens else ""

    def summary(self) -> str:
        """Nothing."""
        return ""


def run(
    options: BackendOptions,
    given: Input[Item],
    work: Work[Item, Result],
    output: Path | None,
    batch_size: int,
    unit: str = "line",
    *,
    full_batches: bool,
) -> bool:
    """Answer the input line by line; returns whether every line could be answered.

    unit: what messages call an item
    full_batches: wait for full batches even if lines come slowly, so that the batches are the same in every run
    """
    report = LineReport(unit)
    shown = wants_progress(given.typed, output)
    try:
        with (
            writing(output) as file,
            open_translator(options) as translator,
            closing(
                answered(translator, given, work, report, batch_size, shown=shown, full_batches=full_batches)
            ) as found,
        ):
            for batch in found:
                for number, item, result in batch:
                    if (line := work.render(number, item, result)) is not None:
                        file.write(line.encode() + b"\n")
                file.flush()
            file.write(work.summary().encode())
    finally:
        report.print_summary()
    return report.complete


def answered(
    translator: Translator,
    given: Input[Item],
    work: Work[Item, Result],
    report: LineReport,
    batch_size: int,
    *,
    shown: bool,
    full_batches: bool,
) -> Generator[list[tuple[int, Item, Result]], None, None]:
    """Yield the items of each batch with their numbers and results, in order; closing it cancels what is in flight.

    report: is given every result
    shown: whether to show a progress bar
    full_batches: see `run`
    """

    def answer(batch: list[tuple[int, Item]]) -> list[tuple[int, Item, Result]]:
        numbers, items = [number for number, _ in batch], [item for _, item in batch]
        try:
            return list(zip(numbers, items, work.answer(translator, numbers, items), strict=True))
        except ServerError as error:
            raise _error_of_batch(f"{report.unit} {numbers[0]}" if numbers[0] > 1 else "", error) from error

    grouped = batches(enumerate(given.items, start=1), batch_size, full_batches)
    with (
        progress_bar(given.size, shown, f"{report.unit}s") as advance,
        closing(in_order(grouped, answer, IN_FLIGHT, translator.close)) as answers,
    ):
        for batch in answers:
            for each in batch:
                report.add(*each)
            yield batch
            advance(len(batch), sum(size_of(item) for _, item, _ in batch))


class LineReport:
    """Prints what is wrong with single lines on standard error.

    complete: whether every line could be answered so far
    unit: what messages call an item
    """

    def __init__(self, unit: str = "line") -> None:
        self.complete, self.unit = True, unit
        self._split: list[int] = []
        self._unsure: list[int] = []
        self._with_nul: list[int] = []

    def add(self, number: int, item: str | tuple[str, str], result: TextResult | ScoreResult) -> None:
        """Print the warnings and the error of a line; what many lines may have is kept for the summary."""
        if any("\0" in text for text in ([item] if isinstance(item, str) else item)):
            self._with_nul.append(number)
        for warning in result.warnings:
            if warning.code == "split":
                self._split.append(number)
            elif warning.code == "low_confidence":
                self._unsure.append(number)
            else:
                print_message(f"{self.unit} {number}: warning: {warning.message}")
        if result.error is not None:
            print_message(
                f"{self.unit} {number}: {reworded(str(result.error), translating=isinstance(result, TextResult))}"
            )
            self.complete = False

    def print_summary(self) -> None:
        """Name the lines that were translated in parts, those that are less sure, and those with NUL characters."""
        if self._split:
            was = "was" if len(self._split) == 1 else "were"
            listed = _list_lines(self._split, self.unit)
            print_message(f"warning: {listed} {was} longer than the model reads and {was} translated in parts")
        if self._unsure:
            has = "has" if len(self._unsure) == 1 else "have"
            listed = _list_lines(self._unsure, self.unit)
            print_message(f"warning: {listed} {has} a translation that is less sure than those of 99 of 100 usual ones")
        if self._with_nul:
            has = "has" if len(self._with_nul) == 1 else "have"
            listed = _list_lines(self._with_nul, self.unit)
            print_message(
                f"warning: {listed} {has} NUL characters, which were left out; the input must be UTF-8, not UTF-16"
            )


def _list_lines(numbers: Sequence[int], unit: str) -> str:
    """The numbers in words, as "lines 3, 17 and 20"; those after the first LINES_NAMED are counted."""
    if len(numbers) == 1:
        return f"{unit} {numbers[0]}"
    *others, last = map(str, numbers)
    if len(numbers) > LINES_NAMED:
        others, last = others[:LINES_NAMED], f"{len(numbers) - LINES_NAMED:,} more"
    return f"{unit}s {', '.join(others)} and {last}"


def answer_non_blank(
    items: list[Item], blank: list[bool], answer: Callable[[list[Item]], list[Result]], nothing: Result
) -> list[Result]:
    """The results of the items that are not blank, with `nothing` at the places of the others."""
    wanted = [item for item, empty in zip(items, blank, strict=True) if not empty]
    results = iter(answer(wanted) if wanted else [])
    return [nothing if empty else next(results) for empty in blank]


def _error_of_batch(first: str, error: ServerError) -> LingonError:
    """The error of a whole request; first: its first item, empty if that is the first one of all."""
    message = reworded(str(error), translating=True)
    return LingonError(f"{first} and after: {message}" if first else message)
