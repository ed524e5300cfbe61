"""Translates a document, such as a .docx file, into a document of the same kind."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from lingon.cli.backend import open_translator
from lingon.cli.lines.format import Columns
from lingon.cli.lines.input import Input, size_of
from lingon.cli.lines.loop import LineReport, TranslateWork, answered
from lingon.cli.lines.output import check_output, print_message
from lingon.cli.lines.progress import wants_progress
from lingon.cli.options.backend import BackendOptions
from lingon.client.protocol.documents import options_of, write
from lingon.client.values.options import TranslateOptions
from lingon.client.values.results import TextResult
from lingon.documents import SUFFIXES, UnreadableDocument, read_document
from lingon.errors import LingonError, SettingsError
from lingon.files import read_setting_file, write_bytes
from lingon.source_language import AUTO

LINE_SUFFIXES = (".txt", ".html", ".htm")  # files that are read as lines or as one text with markup: see --format
OTHER_SUFFIXES = frozenset([".doc", ".docm", ".pdf", ".ppt", ".pptm", ".rtf", ".xls", ".xlsm"])
"""Documents that are not read: their lines are no text."""


def is_document(path: Path | None) -> bool:
    """Whether a file is a document by its name, also one of a kind that is not read."""
    suffix = path.suffix.lower() if path is not None else ""
    return suffix in OTHER_SUFFIXES or (suffix in SUFFIXES and suffix not in LINE_SUFFIXES)


def check_options(columns: Columns, translations: int, *, as_json: bool, read: bool) -> None:
    """Raise SettingsError for options that a document has no place for.

    translations: of each text; read: whether an option says how it is read
    """
    if as_json or columns != Columns() or translations > 1:
        raise SettingsError(
            "a document has no place for --json, --scores, --tokens, --alignment, --num-hypotheses above 1 and "
            "--alternatives above 1"
        )
    if read:
        raise SettingsError("--format and --wrapped are for text; a document says itself how it is written")


def translate_document(
    backend: BackendOptions, path: Path, output: Path | None, request: TranslateOptions, batch_size: int
) -> bool:
    """Write the translation of a document; returns whether each of its texts was translated.

    A text that was not translated stays as it is, and is named. Raises LingonError; then nothing is written.
    """
    if path.suffix.lower() in OTHER_SUFFIXES:
        raise SettingsError(f"--input must be text, or end in {', '.join(SUFFIXES)}; got {path.suffix}")
    if output is None or output.suffix.lower() != path.suffix.lower():
        raise SettingsError(f"--output must name a file that ends in {path.suffix}, as the input does")
    check_output(output, path)
    content = read_setting_file(path)
    try:
        source = request.get("source") or ""
        document = read_document(path.name, content, request.get("target") or "", "" if source == AUTO else source)
    except UnreadableDocument as error:
        raise LingonError(f"{path}: {error}") from None
    options, report, results = options_of(document, request), LineReport("text"), list[TextResult]()
    with open_translator(backend) as translator:
        if options.get("source") == AUTO and document.texts:  # one language, as a short text fits several
            options["source"] = source = translator.find_source(list(document.texts), **options)
            if source == options.get("target"):
                print_message(f"{path} is in {source} already, and is written as it is")
                write_bytes(output, content)
                return True
        given = Input(iter(document.texts), sum(map(size_of, document.texts)))
        work = TranslateWork(options, Columns(), as_json=False)
        shown = wants_progress(typed=False, output=output)
        with closing(answered(translator, given, work, report, batch_size, shown=shown, full_batches=True)) as found:
            for batch in found:
                results += [result for _, _, result in batch]
    report.print_summary()
    write_bytes(output, write(document, results))
    return report.complete
