"""The verbs that work line by line: lines in, batches through a translator, lines out, errors by line.

Lines are read ahead, several batches are in flight, and results are written in the order of the lines: as plain text in
columns, as n-best lists or as JSON.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from lingon.alignment import format_links, word_links
from lingon.cli.backend import BackendOptions, ListTranslator, open_translator
from lingon.cli.input import Input, Item, size_of
from lingon.cli.output import print_message, progress_bar, reworded, wants_progress, writing
from lingon.client.options import ScoreOptions, TranslateOptions
from lingon.client.results import Link, ScoreResult, TextResult, Translation
from lingon.errors import LingonError, ServerError, SettingsError
from lingon.memories.segment import WHOLLY
from lingon.source_language import AUTO
from lingon.text import normalise

IN_FLIGHT = 4  # batches in flight: enough to keep the server's batch full while one is printed
LINES_NAMED = 10  # lines that a warning names before it only counts the others

Result = TypeVar("Result", TextResult, ScoreResult)


class LineWork(Protocol[Item, Result]):
    """What a verb does with its lines."""

    def answer(self, translator: ListTranslator, numbers: list[int], items: list[Item]) -> list[Result]:
        """Return the results of items, whose line numbers are numbers; called on several threads."""

    def render(self, number: int, item: Item, result: Result) -> str | None:
        """Return the output of a result, without its last line feed, or None if it has none."""

    def summary(self) -> str:
        """Return the output after the last result."""


@dataclass(frozen=True, slots=True)
class TranslateWork:
    """The translation of lines. A blank line gives a blank line, and so does one that cannot be translated."""

    options: TranslateOptions
    columns: LineColumns
    as_json: bool

    def answer(self, translator: ListTranslator, numbers: list[int], items: list[str]) -> list[TextResult]:
        """Return the translations. The line number is added to the seed, so that no two batches draw the same
        numbers.
        """
        options = self.options.copy()
        sampling = options.get("sampling")
        if sampling is not None and numbers[0] > 1:
            options["sampling"] = replace(sampling, seed=((sampling.seed or 0) + numbers[0] - 1) % 2**64)
        blank = [not normalise(line) for line in items]
        return answer_non_blank(items, blank, lambda lines: translator.translate(lines, **options), TextResult())

    def render(self, number: int, item: str, result: TextResult) -> str:
        """Return one line, or as many lines as there are translations in an n-best list."""
        if self.as_json:
            return translation_json(number, item, result)
        if self.options.get("format") in ("html", "xml"):
            return self._document(result.text) if result.translations else ""
        if several_of(self.options) > 1:
            return n_best_lines(number, result, self.columns)
        return plain_line(result, self.columns)

    def _document(self, text: str) -> str:
        """Return a document with markup. A page says the language that it is translated to, if that is known."""
        from lingon.documents.pages import FileLanguages, page_in

        if self.options.get("format") != "html" or not self.options.get("target"):
            return text
        source = self.options.get("source") or ""
        return page_in(text, FileLanguages("" if source == AUTO else source, self.options.get("target") or ""))

    def summary(self) -> str:
        """Nothing."""
        return ""


def several_of(options: TranslateOptions) -> int:
    """Return the most translations of a text, as far as the options say it."""
    return max(options.get("num_hypotheses") or 1, options.get("alternatives") or 1)


def check_document_options(columns: LineColumns, translations: int, *, as_json: bool) -> None:
    """Raise SettingsError for options that add to the line of a translation, which a document has not."""
    if not as_json and (columns != LineColumns() or translations > 1):
        raise SettingsError(
            "--format html and xml print documents; add --json for --scores, --tokens, --alignment, --num-hypotheses "
            "and --alternatives"
        )


@dataclass(frozen=True, slots=True)
class ScoreWork:
    """The scores of pairs: the log-probability of each target."""

    options: ScoreOptions
    columns: LineColumns
    as_json: bool

    def answer(self, translator: ListTranslator, numbers: list[int], items: list[tuple[str, str]]) -> list[ScoreResult]:
        """Return the scores. A pair of two empty texts is not sent."""
        blank = [not any(normalise(text) for text in pair) for pair in items]
        return answer_non_blank(items, blank, lambda pairs: translator.score(pairs, **self.options), ScoreResult())

    def render(self, number: int, item: tuple[str, str], result: ScoreResult) -> str:
        """Return one line."""
        if self.as_json:
            return score_json(number, item, result)
        return score_line(result, self.columns) if result.tokens else ""

    def summary(self) -> str:
        """Nothing."""
        return ""


def run(
    options: BackendOptions,
    given: Input[Item],
    work: LineWork[Item, Result],
    output: Path | None,
    batch_size: int,
    unit: str = "line",
    *,
    full_batches: bool,
    opened: Callable[[BackendOptions], AbstractContextManager[ListTranslator]] = open_translator,
) -> bool:
    """Answer the input line by line and return whether every line could be answered.

    unit: what messages call an item
    full_batches: wait for full batches even if lines come slowly, so that the batches are the same in every run
    opened: gives the translator of the options
    """
    report = LineReport(unit)
    shown = wants_progress(given.typed, output)
    try:
        with (
            writing(output) as file,
            opened(options) as translator,
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
    translator: ListTranslator,
    given: Input[Item],
    work: LineWork[Item, Result],
    report: LineReport,
    batch_size: int,
    *,
    shown: bool,
    full_batches: bool,
) -> Generator[list[tuple[int, Item, Result]], None, None]:
    """Yield the items of each batch with their numbers and results, in order. Closing it cancels what is in flight.

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
    """A printer of what is wrong with single lines, on standard error.

    complete: whether every line could be answered so far
    unit: what messages call an item
    """

    def __init__(self, unit: str = "line") -> None:
        self.complete, self.unit = True, unit
        self._split: list[int] = []
        self._unsure: list[int] = []
        self._from_memory = {"is": 0, "has sentences": 0}
        self._with_nul: list[int] = []

    def add(self, number: int, item: str | tuple[str, str], result: TextResult | ScoreResult) -> None:
        """Print the warnings and the error of a line. What many lines may have is kept for the summary."""
        if any("\0" in text for text in ([item] if isinstance(item, str) else item)):
            self._with_nul.append(number)
        for warning in result.warnings:
            if warning.code == "split":
                self._split.append(number)
            elif warning.code == "from_memory":
                self._from_memory["is" if warning.message == WHOLLY else "has sentences"] += 1
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
        """Name the lines that were translated in parts, those that are less sure, and those with NUL characters. Count
        those from translation memories.
        """
        if self._split:
            was = "was" if len(self._split) == 1 else "were"
            listed = _list_lines(self._split, self.unit)
            print_message(f"warning: {listed} {was} longer than the model reads and {was} translated in parts")
        if self._unsure:
            has = "has" if len(self._unsure) == 1 else "have"
            listed = _list_lines(self._unsure, self.unit)
            print_message(f"warning: {listed} {has} a translation that is less sure than those of 99 of 100 usual ones")
        for verb, count in self._from_memory.items():
            if count:
                are = {"is": "are", "has sentences": "have sentences"}[verb]
                subject = f"1 {self.unit} {verb}" if count == 1 else f"{count:,} {self.unit}s {are}"
                print_message(f"{subject} from a translation memory")
        if self._with_nul:
            has = "has" if len(self._with_nul) == 1 else "have"
            listed = _list_lines(self._with_nul, self.unit)
            print_message(
                f"warning: {listed} {has} NUL characters, which were left out; the input must be UTF-8, not UTF-16"
            )


def _list_lines(numbers: Sequence[int], unit: str) -> str:
    """Return the numbers in words, as "lines 3, 17 and 20". Those after the first LINES_NAMED are counted."""
    if len(numbers) == 1:
        return f"{unit} {numbers[0]}"
    *others, last = map(str, numbers)
    if len(numbers) > LINES_NAMED:
        others, last = others[:LINES_NAMED], f"{len(numbers) - LINES_NAMED:,} more"
    return f"{unit}s {', '.join(others)} and {last}"


def answer_non_blank(
    items: list[Item], blank: list[bool], answer: Callable[[list[Item]], list[Result]], nothing: Result
) -> list[Result]:
    """Return the results of the items that are not blank, with `nothing` at the positions of the others."""
    wanted = [item for item, empty in zip(items, blank, strict=True) if not empty]
    results = iter(answer(wanted) if wanted else [])
    return [nothing if empty else next(results) for empty in blank]


def _error_of_batch(first: str, error: ServerError) -> LingonError:
    """Return the error of a whole request; first: its first item, empty if that is the first one of all."""
    message = reworded(str(error), translating=True)
    return LingonError(f"{first} and after: {message}" if first else message)


Given = TypeVar("Given")
Made = TypeVar("Made")

PAUSE = 0.005  # seconds that a batch waits for its next line: lines of a file come faster, typed lines slower


class ReadAhead(Generic[Given]):
    """An iterator that runs on a thread of its own. Its exception is raised here, after the items before it."""

    def __init__(self, items: Iterator[Given], capacity: int) -> None:
        """capacity: how many items the thread may be ahead."""
        self._items = items
        self._queue: queue.Queue[tuple[Given] | Exception] = queue.Queue(capacity)
        threading.Thread(target=self._run, daemon=True).start()  # a read from a terminal cannot be cancelled

    def take(self, timeout: float | None = None) -> Given:
        """Return the next item. Raises StopIteration after the last, queue.Empty if none comes within timeout
        seconds.
        """
        entry = self._queue.get(timeout=timeout)
        if isinstance(entry, Exception):
            self._queue.put(entry)  # every later call raises it again
            raise entry
        return entry[0]

    def __iter__(self) -> Iterator[Given]:
        return self

    def __next__(self) -> Given:
        return self.take()

    def _run(self) -> None:
        try:
            for item in self._items:
                self._queue.put((item,))
        except Exception as error:
            self._queue.put(error)
        else:
            self._queue.put(StopIteration())


def batches(items: Iterator[Given], size: int, whole: bool = False) -> Iterator[list[Given]]:
    """Yield batches of at most size items. A batch does not wait for more lines after PAUSE, unless whole is True."""
    ahead = ReadAhead(items, capacity=4 * size)
    batch: list[Given] = []
    while True:
        try:
            batch.append(ahead.take(PAUSE if batch and not whole else None))
        except queue.Empty:
            pass
        except StopIteration:
            break
        except Exception:
            if batch:
                yield batch
            raise
        else:
            if len(batch) < size:
                continue
        yield batch
        batch = []
    if batch:
        yield batch


def in_order(
    items: Iterator[Given],
    work: Callable[[Given], Made],
    in_flight: int,
    cancel: Callable[[], None] = lambda: None,
) -> Generator[Made, None, None]:
    """work(item) of every item, in_flight at once, in order. An error is raised after the results before it.

    cancel: called at an error and if the generator is closed early, to end the calls that are still running
    """
    pool = ThreadPoolExecutor(in_flight)
    try:
        for future in ReadAhead((pool.submit(work, item) for item in items), capacity=in_flight):
            yield future.result()
    except BaseException:
        cancel()
        raise
    finally:
        pool.shutdown(cancel_futures=True)  # waits for running calls: the translator is closed next


_LINE_BREAKS: dict[int, str | None] = {**{ord(character): " " for character in "\n\r\t"}, 0: None}
"""Characters that would break lines and columns. A translation has those between the sentences of its source, and a
model with byte fallback can generate them.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineColumns:
    """The columns that a line has in addition to the text."""

    scores: bool = False
    tokens: bool = False
    alignment: bool = False


def plain_line(result: TextResult, wanted: LineColumns) -> str:
    """Return the text, then the wanted columns: score, tokens, alignment; separated by tabs. Empty without a
    translation.
    """
    if not result.translations:
        return ""
    best = result.translations[0]
    return "\t".join([_one_line(best.text), *_extras(result, best, wanted)])


def n_best_lines(number: int, result: TextResult, wanted: LineColumns) -> str:
    """Return a line for each translation in the format of Moses and Marian, `0 ||| text ||| score`; texts count from
    0.
    """
    with_scores = replace(wanted, scores=True)
    if not result.translations:
        return f"{number - 1} |||  ||| 0"
    return "\n".join(
        " ||| ".join([str(number - 1), _one_line(translation.text), *_extras(result, translation, with_scores)])
        for translation in result.translations
    )


def translation_json(number: int, source: str, result: TextResult) -> str:
    """Return one JSON object; `text` is the text of the best translation."""
    if result.error is not None:
        return _json({"line": number, "source": source, "error": _error(result.error)})
    values: dict[str, Any] = {"line": number, "source": source, "text": result.text if result.translations else ""}
    values["source_language"] = result.source
    for name in ("source_tokens", "target_tokens", "model", "version", "shortlist", "normalised_text", "confidence"):
        values[name] = getattr(result, name)
    values["warnings"] = [asdict(warning) for warning in result.warnings]
    values["sentences"] = [asdict(sentence) for sentence in result.sentences]
    values["terms"] = [asdict(term) for term in result.terms]
    values["matches"] = [asdict(match) for match in result.matches]
    values["translations"] = [asdict(translation) for translation in result.translations]
    return _json(values)


def score_line(result: ScoreResult, wanted: LineColumns) -> str:
    """Return the log-probability, then the wanted columns: tokens with log-probabilities, alignment; separated by
    tabs.
    """
    columns = [f"{result.log_prob:.4f}"]
    if wanted.tokens:
        columns.append(" ".join(f"{token.piece}:{token.log_prob:.4f}" for token in result.tokens))
    if wanted.alignment:
        columns.append(_words(result.alignment, result.normalised_source, result.normalised_target))
    return "\t".join(columns)


def score_json(number: int, pair: tuple[str, str], result: ScoreResult) -> str:
    """Return one JSON object."""
    values: dict[str, Any] = {"line": number, "source": pair[0], "target": pair[1]}
    if result.error is not None:
        return _json({**values, "error": _error(result.error)})
    left_out = {"error", "attention", "source_pieces", "target_pieces"}  # `lingon attend` prints attention
    return _json({**values, **{name: value for name, value in asdict(result).items() if name not in left_out}})


def _extras(result: TextResult, translation: Translation, wanted: LineColumns) -> list[str]:
    columns = [f"{translation.score:.4f}"] if wanted.scores else []
    if wanted.tokens:
        columns.append(" ".join(token.piece for token in translation.tokens))
    if wanted.alignment:
        columns.append(_words(translation.alignment, result.normalised_text, _one_line(translation.text)))
    return columns


def _words(alignment: Iterable[Link], source: str, target: str) -> str:
    """Return the alignment in Pharaoh form; source, target: the texts to which the spans of the links refer."""
    return format_links(word_links(((link.source, link.target) for link in alignment), source, target))


def _one_line(text: str) -> str:
    return text.translate(_LINE_BREAKS)


def _error(error: ServerError) -> dict[str, Any]:
    return {"status": error.status, "reason": error.reason, "message": str(error)}


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False)
