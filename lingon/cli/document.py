"""The translation of a document, such as a .docx file, into a document of the same kind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lingon.cli.backend import BackendOptions, ListTranslator
from lingon.cli.input import Input, size_of
from lingon.cli.lines import LineColumns, LineReport, TranslateWork, answered
from lingon.cli.memory import NO_MEMORY, MemoryTranslator, open_with_memory
from lingon.cli.options import MemoryFiles
from lingon.cli.output import check_output, print_message, wants_progress
from lingon.client.options import TranslateOptions
from lingon.client.protocol import only_target, options_of, write
from lingon.client.results import TextResult
from lingon.documents import (
    SUFFIXES,
    Document,
    UnreadableDocument,
    charset_of,
    read_document,
    says_target,
    translated_suffix,
)
from lingon.documents.encodings import read_encoded
from lingon.errors import LingonError, SettingsError
from lingon.files import read_setting_file, without_packing, write_bytes
from lingon.source_language import AUTO

PAGES = (".html", ".htm")
LINE_SUFFIXES = (".txt", *PAGES)  # files that are read as lines or as one text with markup: see --format
MARKUP_SUFFIXES = (".xml", ".svg", ".dita")  # files that --format xml reads as one text, whatever their root is
OTHER_SUFFIXES = frozenset([".doc", ".docm", ".pdf", ".ppt", ".pptm", ".rtf", ".xls", ".xlsm"])
"""Documents that are not read: their lines are no text, whatever --format says."""


def is_document(path: Path | None, *, markup: bool = False) -> bool:
    """Return whether a file is a document by its name, also one of a kind that is not read.

    markup: whether --format says that the file is a text with markup
    """
    suffix = path.suffix.lower() if path is not None else ""
    if markup and suffix in MARKUP_SUFFIXES:
        return False
    return suffix in OTHER_SUFFIXES or (suffix in SUFFIXES and suffix not in LINE_SUFFIXES)


def check_lines(path: Path, *, stated: bool) -> None:
    """Raise SettingsError for a file whose name does not say that its lines are text.

    The lines of a file of another kind have keys and marks, which a translation would destroy.
    stated: whether --format says how the file is written
    """
    unpacked = Path(without_packing(path.name.lower()))
    suffix = unpacked.suffix
    if unpacked.name != path.name.lower() and is_document(unpacked):
        raise SettingsError(f"--input must not be packed if it is a document, got {path.name}; unpack it first")
    if suffix and suffix not in LINE_SUFFIXES and not stated:
        known = ", ".join(SUFFIXES)
        raise SettingsError(
            f"--input must end in {known}, or have no ending, got {suffix}; with --format plain its lines are text"
        )


def check_column(column: str | None) -> None:
    """Raise SettingsError for a column of texts that are no table."""
    if column is not None:
        raise SettingsError("--column is for an --input that ends in .csv or .tsv")


def read_page(path: Path) -> bytes | None:
    """Return the content of a file that is a page by its name, or None for another one, and for what is no file."""
    return read_setting_file(path) if path.suffix.lower() in PAGES and path.is_file() else None


def is_encoded(content: bytes) -> bool:
    """Return whether a page is in another encoding than UTF-8: its translation is written in that, as its head says."""
    try:
        return not read_encoded(content, charset_of(content))[1].is_utf_8
    except UnreadableDocument:
        return True  # which is refused with its name


def check_options(columns: LineColumns, translations: int, *, as_json: bool, read: bool) -> None:
    """Raise SettingsError for options that a document cannot hold.

    translations: of each text; read: whether an option says how it is read
    """
    if as_json or columns != LineColumns() or translations > 1:
        raise SettingsError(
            "a document has no place for --json, --scores, --tokens, --alignment, --num-hypotheses above 1 and "
            "--alternatives above 1"
        )
    if read:
        raise SettingsError("--format and --wrapped are for text; a document says itself how it is written")


def translate_document(
    backend: BackendOptions,
    path: Path,
    output: Path | None,
    request: TranslateOptions,
    batch_size: int,
    column: str | None = None,
    content: bytes | None = None,
    memory: MemoryFiles = NO_MEMORY,
) -> bool:
    """Write the translation of a document and return whether each of its texts was translated.

    column: of a table, its name or its number
    content: that of the file, or None if it has not been read yet
    memory: the files of translation memories
    A text that was not translated stays as it is, and is named. Raises LingonError. Then nothing is written.
    """
    _check_names(path, output)
    content = read_setting_file(path) if content is None else content
    source, target = request.get("source") or "", request.get("target") or ""
    read = partial(_read, path, content, source="" if source == AUTO else source, column=column)
    document = None if not target and says_target(path.name) else read(target)
    report, results = LineReport("text"), list[TextResult]()
    with open_with_memory(backend, memory, request) as translator:
        if document is None:
            target = only_target(translator.list_models(), request.get("model") or "")
            document = read(target)
        options = options_of(document, request)
        if options.get("source") == AUTO and document.texts:  # one language, as a short text fits several
            options["source"] = source = translator.find_source(list(document.texts), **options)
            if source == options.get("target"):
                print_message(f"{path} is in {source} already, and is written as it is")
                _write(output, content)
                return True
        given = Input(iter(document.texts), sum(map(size_of, document.texts)))
        work = _DocumentWork(options, LineColumns(), as_json=False, texts=document.texts)
        shown = wants_progress(typed=False, output=output)
        with closing(answered(translator, given, work, report, batch_size, shown=shown, full_batches=True)) as found:
            for batch in found:
                results += [result for _, _, result in batch]
    report.print_summary()
    written = write(document, results)
    for note in document.notes:
        print_message(f"{path}: {note}")
    _write(output, written)
    return report.complete


def _check_names(path: Path, output: Path | None) -> None:
    """Raise SettingsError for an input that is not read, and for an output of another kind."""
    suffix = path.suffix.lower()
    if suffix in OTHER_SUFFIXES:
        raise SettingsError(f"--input must end in {', '.join(SUFFIXES)}, or be text, got {path.suffix}")
    suffixes = suffix, translated_suffix(path.name).lower()
    if suffix not in PAGES and (output is None or output.suffix.lower() not in suffixes):
        raise SettingsError(f"--output must name a file that ends in {path.suffix}, as the input does")
    if output is not None:
        check_output(output, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DocumentWork(TranslateWork):
    """The translations of the texts of a document, which a memory looks up between their neighbours."""

    texts: Sequence[str]

    def answer(self, translator: ListTranslator, numbers: list[int], items: list[str]) -> list[TextResult]:
        """See TranslateWork."""
        if isinstance(translator, MemoryTranslator):
            first, last = numbers[0] - 1, numbers[-1]
            before, after = self.texts[:first][-1:], self.texts[last : last + 1]
            translator = translator.between("".join(before), "".join(after))
        return TranslateWork.answer(self, translator, numbers, items)


def _read(path: Path, content: bytes, target: str, *, source: str, column: str | None) -> Document:
    """Return a document. Raises LingonError that names the file."""
    try:
        return read_document(path.name, content, target, source, column or "")
    except UnreadableDocument as error:
        raise LingonError(f"{path}: {error}") from None


def _write(output: Path | None, content: bytes) -> None:
    if output is not None:
        write_bytes(output, content)
    elif sys.stdout is not None:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
