"""Translates a document, such as a .docx file, into a document of the same kind."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from lingon.cli.backend import Translator, open_translator
from lingon.cli.lines.batching import in_order
from lingon.cli.lines.format import Columns
from lingon.cli.lines.loop import IN_FLIGHT, LineReport
from lingon.cli.lines.output import check_output, print_message
from lingon.cli.lines.progress import progress_bar, wants_progress
from lingon.cli.options.backend import BackendOptions
from lingon.client.protocol.documents import options_of, write
from lingon.client.values.messages import cut
from lingon.client.values.options import TranslateOptions
from lingon.client.values.results import TextResult
from lingon.documents import SUFFIXES, UnreadableDocument, read_document
from lingon.errors import LingonError, SettingsError
from lingon.files import read_setting_file, write_bytes
from lingon.language_pairs import is_one_language
from lingon.source_language import AUTO

LINE_SUFFIXES = (".txt", ".html", ".htm")  # files that are read as lines or as one text with markup: see --format


def is_document(path: Path | None) -> bool:
    """Whether a file is a document by its name."""
    suffix = path.suffix.lower() if path is not None else ""
    return suffix in SUFFIXES and suffix not in LINE_SUFFIXES


def check_options(columns: Columns, num_hypotheses: int | None, *, as_json: bool, read: bool) -> None:
    """Raise SettingsError for options that a document has no place for; read: whether one says how it is read."""
    if as_json or columns != Columns() or (num_hypotheses or 1) > 1:
        raise SettingsError(
            "a document has no place for --json, --scores, --tokens, --alignment and --num-hypotheses above 1"
        )
    if read:
        raise SettingsError("--format and --wrapped are for text; a document says itself how it is written")


def translate_document(
    backend: BackendOptions, path: Path, output: Path | None, request: TranslateOptions, batch_size: int
) -> bool:
    """Write the translation of a document; returns whether each of its texts was translated.

    A text that was not translated stays as it is, and is named. Raises LingonError; then nothing is written.
    """
    if output is None or output.suffix.lower() != path.suffix.lower():
        raise SettingsError(f"--output must name a file that ends in {path.suffix}, as the input does")
    check_output(output, path)
    content = read_setting_file(path)
    try:
        document = read_document(path.name, content, request.get("target") or "")
    except UnreadableDocument as error:
        raise LingonError(f"{path}: {error}") from None
    options, report = options_of(document, request), LineReport("text")
    with open_translator(backend) as translator:
        if options.get("source") == AUTO and document.texts:  # one language, as a short text fits several
            options["source"] = source = translator.find_source(list(document.texts), **options)
            if is_one_language(options.get("target") or "", source):
                print_message(f"{path} is in {source} already, and is written as it is")
                write_bytes(output, content)
                return True
        shown = wants_progress(typed=False, output=output)
        results = _results(translator, document.texts, options, batch_size, shown=shown)
    for number, (text, result) in enumerate(zip(document.texts, results, strict=True), start=1):
        report.add(number, text, result)
    report.print_summary()
    write_bytes(output, write(document, results))
    return report.complete


def _results(
    translator: Translator, texts: Sequence[str], options: TranslateOptions, batch_size: int, *, shown: bool
) -> list[TextResult]:
    """Return the results of all texts."""
    parts = [part for _, part in cut(texts, batch_size)]
    found: list[TextResult] = []
    with progress_bar(sum(map(len, texts)), shown, "texts") as advance:

        def answer(part: Sequence[str]) -> list[TextResult]:
            return translator.translate(list(part), **options)

        with closing(in_order(iter(parts), answer, IN_FLIGHT)) as answers:
            for part, results in zip(parts, answers, strict=True):
                found += results
                advance(len(part), sum(map(len, part)))
    return found
