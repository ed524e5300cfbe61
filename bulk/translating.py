"""The translation of columns of texts: each different text once, the longest first, with the engine kept full."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from google.rpc import code_pb2

from lingon.bulk.format import CellValue, Column, Unreadable
from lingon.bundle.store import find_model, open_bundle
from lingon.cli.backend import BackendOptions, ListTranslator, open_translator
from lingon.cli.lines import in_order
from lingon.cli.memory import NO_MEMORY, LocalMemory, MemoryTranslator, languages_of, memory_folder, open_memory
from lingon.cli.options import MemoryFiles
from lingon.client.options import TranslateOptions
from lingon.client.results import ModelInfo, TextResult
from lingon.errors import LingonError, ServerError, SettingsError
from lingon.source_language import check_named
from lingon.terms.term_list import TermList
from lingon.text import normalise

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 64  # texts of a request
BATCH_CHARACTERS = 100_000  # of a request with several texts
IN_FLIGHT = 16  # requests: four times the rows of two engines
OF_A_TEXT = {code_pb2.INVALID_ARGUMENT, code_pb2.NOT_FOUND, code_pb2.UNIMPLEMENTED, code_pb2.FAILED_PRECONDITION}
"""Statuses of a request that one of its texts may have caused."""
PROBE = "Hello."
"""The text whose result says which model translates."""

SOURCE = "source_language_code"
"""The field of a request that an error names if the model needs its source language."""

DIGITS = 12  # of the digest of a bundle
CPU = "CPUExecutionProvider"

TextKey = tuple[str, str | None]  # a text and its language


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """The outcome of a text: its translation, or the reason why there is none."""

    text: str | None = None
    error: str | None = None
    confidence: float | None = None


@dataclass(slots=True)
class TokenCounts:
    """Tokens of the texts that were translated, and of their translations.

    rows_without_terms: rows whose translation lacks a term
    """

    source_tokens: int = 0
    target_tokens: int = 0
    rows_without_terms: int = 0


BLANK = CellOutcome("")


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns that are read and added.

    text: of the texts; into: of the translations; errors: of the reasons why a row has no translation, else null
    language: of the language of each text; confidence: of the confidence of the translations
    """

    text: str = "text"
    into: str = "translation"
    language: str | None = None
    confidence: str | None = None

    @property
    def errors(self) -> str:
        """The name of the column of errors."""
        return f"{self.into}_error"

    @property
    def needed(self) -> list[str]:
        """The columns that a file must have."""
        return [self.text, *([self.language] if self.language else [])]

    @property
    def added(self) -> list[str]:
        """The columns that a file must not have."""
        return [self.into, *([self.confidence] if self.confidence else []), self.errors]

    def __post_init__(self) -> None:
        names = [*self.needed, *self.added]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SettingsError(f"the column {twice!r} is named twice; each column needs a name of its own")


class Translate:
    """A translator of a column of tables, with a model in this process or a server.

    It may be copied to other processes. Each loads the model at the first use. Use it in a `with` block, or close it.
    """

    def __init__(
        self,
        *,
        column: str = "text",
        into: str = "translation",
        language_column: str | None = None,
        confidence_column: str | None = None,
        backend: BackendOptions | None = None,
        model: str | None = None,
        server: str | None = None,
        **options: Any,
    ) -> None:
        """Load nothing yet.

        column, into, language_column, confidence_column: names of columns, see Columns
        model, server: see lingon.cli.backend.BackendOptions, or `backend` with all of its fields
        options: see lingon.TranslateOptions
        """
        self.columns = Columns(text=column, into=into, language=language_column, confidence=confidence_column)
        unknown = options.keys() - TranslateOptions.__annotations__.keys()
        if unknown:
            raise SettingsError(f"Translate has no option {min(unknown)}; see lingon.TranslateOptions")
        check_named(options.get("source"), "a run of bulk")
        self.options = {name: value for name, value in options.items() if value is not None}
        if "terms" in self.options:
            self.options["terms"] = TermList.of(self.options["terms"])
        self.backend = backend or BackendOptions(model=model, server=server)
        self._closing = ExitStack()
        self._translator: ListTranslator | None = None
        self._answering: MemoryTranslator | None = None
        self._memory: tuple[Path, str] | None = None
        self._model: str | None = None
        self._provider = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *rest: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("columns", "options", "backend", "_memory")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _closing=ExitStack(), _translator=None, _answering=None, _model=None, _provider="")

    def close(self) -> None:
        """Unload the model, or end the connection."""
        self._translator = self._answering = None
        self._closing.close()

    @contextmanager
    def with_memory(self, files: MemoryFiles) -> Iterator[tuple[str, str]]:
        """Take the texts that a file of a translation memory has from there, until the block ends.

        Gives the languages, source and target, which are empty if no file needs them.
        The memory is in a temporary folder of this machine, where other processes find it.
        """
        if files == NO_MEMORY:
            yield "", ""
            return
        if self.columns.language:
            raise SettingsError("--memory and --write-memory have texts of one language: leave out --language-column")
        languages = languages_of(self._opened(), files, self.options)  # type: ignore[arg-type]
        if files.memory is None:
            yield languages
            return
        with memory_folder(files.memory, languages) as folder:
            self._memory = folder, open_memory(folder).digest
            try:
                yield languages
            finally:
                self._memory = self._answering = None

    def memory(self) -> LocalMemory | None:
        """Return the translation memory of the run, or None without one."""
        return open_memory(self._memory[0]) if self._memory else None

    @property
    def identity(self) -> dict[str, Any]:
        """What a run is recognised by: the options, and what the translation memory has."""
        return {**self.options, **({"memory_file": self._memory[1]} if self._memory else {})}

    def model(self) -> str:
        """Return the model with version and precision, as "en-de/7 int8". A bundle has the start of its digest too."""
        if self._model is None:
            translator = self._opened()
            result = self._probed(translator)
            if not result.model:
                raise result.error or LingonError("the model did not answer")
            models = [each for each in translator.list_models() if _label(each) == _label(result)]
            if not models:
                raise LingonError(f"{_label(result)}: was replaced while this run began; start it again")
            self._model = f"{_label(result)} {models[0].precision}{self._digest()}"
            self._provider = models[0].provider
        return self._model

    def _probed(self, translator: ListTranslator) -> TextResult:
        """Return the result of PROBE; of a model of several source languages in one of these, if rows name theirs."""
        try:
            return translator.translate([PROBE], **self._request_options(None))[0]
        except ServerError as error:
            if self.columns.language is None or SOURCE not in dict(error.violations):
                raise
            refused = error
        for language in _probe_languages(translator.list_models()):
            try:
                return translator.translate([PROBE], **self._request_options(language))[0]
            except ServerError as error:
                if error.code not in OF_A_TEXT:
                    raise
                refused = error
        raise refused

    def on_cpu(self) -> bool:
        """Return whether the model computes on the CPU."""
        self.model()
        return self._provider == CPU

    def require(self, model: str) -> None:
        """Raise SettingsError unless this is the model."""
        if self.model() != model:
            raise SettingsError(f"the model here is {self.model()}, but the run was begun with {model}")

    def _digest(self) -> str:
        """Return the beginning of the digest of a bundle, with a space before it, empty for a server."""
        if not self.backend.in_process:
            return ""
        return f" {open_bundle(find_model(self.backend.model or '')).manifest_digest[:DIGITS]}"

    def __call__(self, batch: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
        """Return a table or batch with the added columns, like the functions that Ray Data, Spark and Dask map."""
        import pyarrow as pa

        from lingon.bulk.tables import texts_of, with_columns

        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        language = self.columns.language
        languages = texts_of(table[language]) if language else None
        cells, _ = self.cells(texts_of(table[self.columns.text]), languages)
        result = with_columns(table, self.added(cells))
        if not isinstance(batch, pa.RecordBatch):
            return result
        (whole,) = result.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], result.schema)]
        return whole

    def added(self, cells: Sequence[CellOutcome]) -> dict[str, Column]:
        """Return the columns that are added to a table."""
        columns = {self.columns.into: Column([each.text for each in cells])}
        if self.columns.confidence:
            columns[self.columns.confidence] = Column([each.confidence for each in cells], numeric=True)
        return columns | {self.columns.errors: Column([each.error for each in cells])}

    def cells(
        self,
        values: Sequence[CellValue],
        languages: Sequence[CellValue] | None = None,
        on_rows: Callable[[int], object] = lambda rows: None,
    ) -> tuple[list[CellOutcome], TokenCounts]:
        """Return the outcome of each value, and the number of tokens.

        languages: of the values. None, or a null, is the default language of the model
        on_rows: called with the number of rows that are done since the last call
        Raise ServerError if the server or the model fails, because then no text is the cause.
        """
        cells = [_without_model(value) or self._remembered(values, position) for position, value in enumerate(values)]
        positions: dict[TextKey, list[int]] = defaultdict(list)
        for position, value in enumerate(values):
            language = languages[position] if languages else None
            if cells[position] is not None:
                continue
            if isinstance(language, Unreadable):
                cells[position] = CellOutcome(error=f"the language: {language.reason}")
            else:
                positions[str(value), language].append(position)
        on_rows(sum(each is not None for each in cells))
        counts = TokenCounts()
        with closing(in_order(_batches(positions), self._answer, IN_FLIGHT)) as answers:
            for keys, results in answers:
                for key, result in zip(keys, results, strict=True):
                    cell = _cell(result)
                    for position in positions[key]:
                        cells[position] = cell
                    if result.lacks_terms:
                        counts.rows_without_terms += len(positions[key])
                counts.source_tokens += sum(result.source_tokens for result in results)
                counts.target_tokens += sum(result.target_tokens for result in results)
                on_rows(sum(len(positions[key]) for key in keys))
        return [each for each in cells if each is not None], counts

    def _remembered(self, values: Sequence[CellValue], position: int) -> CellOutcome | None:
        """Return what the memory has for a value between its neighbours, or None."""
        if not self._memory:
            return None
        around = values[position - 1 : position] if position else (), values[position + 1 : position + 2]
        options = self._request_options(None)
        known = self._remembering().known(str(values[position]), options, *map(_only_text, around))
        return _cell(known) if known else None

    def _answer(self, keys: list[TextKey]) -> tuple[list[TextKey], list[TextResult]]:
        options = self._request_options(keys[0][1])
        translator = self._remembering() if self._memory else self._opened()
        results = _isolated(translator, [text for text, _ in keys], options)
        other = next((_label(each) for each in results if each.model and not self._is_from(each)), None)
        if other is not None:
            raise LingonError(f"the server has replaced the model of this run, {self._model}, by {other}")
        return keys, results

    def _is_from(self, result: TextResult) -> bool:
        """Return whether a result is from the model of the run, if that is known."""
        return self._model is None or self._model.startswith(f"{_label(result)} ")

    def _request_options(self, language: str | None) -> dict[str, Any]:
        own = {"model": self.backend.server_model, **({"source": language} if language else {})}
        return {**self.options, **own}

    def _remembering(self) -> MemoryTranslator:
        """Return the translator that asks the memory first."""
        if self._answering is None:
            self._answering = MemoryTranslator(
                self._opened(), self.memory(), None, language=self.options.get("source") or ""
            )
        return self._answering

    def _opened(self) -> ListTranslator:
        if self._translator is None:
            self._translator = self._closing.enter_context(open_translator(self.backend))
        return self._translator


def _label(of: TextResult | ModelInfo) -> str:
    """Return the name and the version of a model."""
    name = of.model if isinstance(of, TextResult) else of.name
    return f"{name}/{of.version}"


def _probe_languages(models: Sequence[ModelInfo]) -> list[str]:
    """Return two source languages of each model with several, because one of them may be the target language."""
    return list(dict.fromkeys(language for each in models for language in each.source_languages[:2]))


def _without_model(value: CellValue) -> CellOutcome | None:
    """Return the outcome of a value that is not sent to the model, or None for one that is."""
    if value is None:
        return CellOutcome(error="the text is null")
    if isinstance(value, Unreadable):
        return CellOutcome(error=value.reason)
    return None if normalise(value) else BLANK


def _only_text(values: Sequence[CellValue]) -> str:
    """Return the text of a row next to another one, empty if there is none."""
    return values[0] if values and isinstance(values[0], str) else ""


def _cell(result: TextResult) -> CellOutcome:
    if result.error is None:
        return CellOutcome(result.text, confidence=result.confidence)
    return CellOutcome(error=re.sub(r"^texts\[\d+\][.: ]+", "", str(result.error)))


def _batches(positions: Mapping[TextKey, list[int]]) -> Iterator[list[TextKey]]:
    """Yield texts of one language for each request, the longest first: texts of one length are encoded together."""
    batch: list[TextKey] = []
    size = 0
    for key in sorted(positions, key=lambda key: (key[1] or "", -len(key[0]), key[0])):
        if batch and (len(batch) == BATCH or size + len(key[0]) > BATCH_CHARACTERS or key[1] != batch[0][1]):
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += len(key[0])
    if batch:
        yield batch


def _isolated(
    translator: ListTranslator | MemoryTranslator, texts: list[str], options: dict[str, Any]
) -> list[TextResult]:
    """Return the results of texts. If one of them spoils their request, the halves of the request are sent alone."""
    try:
        return translator.translate(texts, **options)
    except ServerError as error:
        if error.code not in OF_A_TEXT:
            raise
        if len(texts) == 1:
            return [TextResult(error=error)]
        half = len(texts) // 2
        return [*_isolated(translator, texts[:half], options), *_isolated(translator, texts[half:], options)]
