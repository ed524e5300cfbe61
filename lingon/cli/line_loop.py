"""What verbs share that answer line by line: lines in, batches through a client, lines out, errors by line number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from lingon.cli.backend import Answers, Where, connected
from lingon.cli.batching import batches, in_order
from lingon.cli.output import check_output, say, writing
from lingon.client.results import ScoreResult, TextResult
from lingon.errors import CorpusError, LingonError, ServerError, SettingsError
from lingon.lines import read_lines, read_parallel, standard_input

IN_FLIGHT = 4
"""Batches on their way at once: enough that the server's batch stays full while one is printed."""

Item = TypeVar("Item")
Result = TypeVar("Result", TextResult, ScoreResult)


class Work(Protocol[Item, Result]):
    """What a verb does with its lines."""

    def answer(self, client: Answers, numbers: list[int], items: list[Item]) -> list[Result]:
        """The results of items, the lines of these numbers; called on several threads."""

    def render(self, number: int, item: Item, result: Result) -> str:
        """The line that tells a result."""


def run(
    where: Where, items: Iterator[Item], work: Work[Item, Result], output: Path | None, batch_size: int, whole: bool
) -> bool:
    """Answer items line by line; returns whether every one could be.

    whole: batches are full even where lines come slowly, so that they are the same in every run
    """
    intact = True
    with writing(output) as file, connected(where) as client:

        def answer(batch: list[tuple[int, Item]]) -> tuple[list[tuple[int, Item]], list[Result]]:
            try:
                return batch, work.answer(client, [number for number, _ in batch], [item for _, item in batch])
            except ServerError as error:
                raise _from_line(batch[0][0], error) from error

        grouped = batches(enumerate(items, start=1), batch_size, whole)
        with closing(in_order(grouped, answer, IN_FLIGHT)) as answers, _ended_early(client):
            for batch, results in answers:
                for (number, item), result in zip(batch, results, strict=True):
                    intact = _tell(number, result) and intact
                    file.write(work.render(number, item, result).encode() + b"\n")
                file.flush()
    return intact


@contextmanager
def _ended_early(client: Answers) -> Iterator[None]:
    """Where the run ends with an error, what is still asked of a server is taken back, not waited for."""
    try:
        yield
    except BaseException:
        client.close()
        raise


def spread(
    items: list[Item], blank: list[bool], full: Callable[[list[Item]], list[Result]], nothing: Result
) -> list[Result]:
    """full(items that are not blank), with nothing in the places of the others."""
    wanted = [item for item, empty in zip(items, blank, strict=True) if not empty]
    results = iter(full(wanted) if wanted else [])
    return [nothing if empty else next(results) for empty in blank]


def is_empty(result: TextResult | ScoreResult) -> bool:
    """Whether a line held nothing to translate, to the client or only to the server (invisible characters).

    Of a pair nothing is to be scored only where both sides are empty, which the client sees.
    """
    return isinstance(result, TextResult) and result.error is not None and result.error.reason == "EMPTY_TEXT"


def input_lines(arguments: Iterable[str], path: Path | None, output: Path | None) -> Iterator[str]:
    """The texts given as arguments, or the lines of a file, or those of standard input."""
    given = list(arguments)
    if given and path is not None:
        raise SettingsError("give texts as arguments or --input, not both")
    for number, text in enumerate(given, start=1):
        if not _is_utf8(text):
            raise SettingsError(f"argument {number}: not UTF-8")
    if output is not None:
        check_output(output, path)
    if given:
        return iter(given)
    return read_lines(path) if path is not None else standard_input()


def input_pairs(source: Path | None, target: Path | None) -> Iterator[tuple[str, str]]:
    """The pairs of two line-parallel files, or of SOURCE<tab>TARGET lines on standard input."""
    if (source is None) != (target is None):
        raise SettingsError("give both --source and --target, or neither and TSV on standard input")
    if source is not None and target is not None:
        return read_parallel(source, target)
    return _tab_pairs(standard_input())


def _tab_pairs(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) != 2:
            raise CorpusError(f"standard input:{number}: has {len(columns)} columns, not source and target")
        yield columns[0], columns[1]


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python keeps the bytes of an argument that is not UTF-8 as lone surrogates
        return False
    return True


def _from_line(number: int, error: ServerError) -> LingonError:
    return LingonError(f"line {number} and after: {error}") if number > 1 else error


def _tell(number: int, result: TextResult | ScoreResult) -> bool:
    """Says on standard error what a person should know of a line; returns whether it could be answered."""
    if isinstance(result, TextResult):
        for warning in result.warnings:
            say(f"line {number}: warning: {warning.message}")
    if result.error is None or is_empty(result):
        return True
    say(f"line {number}: {_of_a_line(str(result.error), splits=isinstance(result, TextResult))}")
    return False


def _of_a_line(message: str, splits: bool) -> str:
    """What the service says of a text, for a person who gave a line and has flags; splits: whether there is one."""
    remedy = "shorten it or give --split-long" if splits else "shorten it"
    message = message.replace("shorten it or set options.long_text to LONG_TEXT_POLICY_SPLIT", remedy)
    return re.sub(r"^(texts|pairs)\[\d+\][. ]", "", message)
