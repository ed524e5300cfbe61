"""The exchange that translates a document: its texts, which are in one language, and what is written of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lingon.client.protocol.steps import Compute, Exchange
from lingon.client.values.options import FORMATS, TranslateOptions
from lingon.client.values.results import DocumentResult, ModelInfo, TextResult
from lingon.errors import SettingsError
from lingon.source_language import AUTO

if TYPE_CHECKING:
    from lingon.documents import Document

READING = ("format", "splitting_tags", "non_splitting_tags")
"""Options that say how a text is read, which a document says itself."""


def options_of(document: Document, options: TranslateOptions) -> TranslateOptions:
    """Return the options with those by which the texts of a document are read."""
    formats = {number: name for name, number in FORMATS.items()}
    found: TranslateOptions = {
        **options,
        "format": formats.get(document.options.format, "plain"),  # type: ignore[typeddict-item]
        "splitting_tags": list(document.options.splitting_tags),
        "non_splitting_tags": list(document.options.non_splitting_tags),
    }
    if document.options.keep and not options.get("forced_words"):
        found["keep"] = [*(options.get("keep") or ()), *document.options.keep]
    if options.get("source") == AUTO:  # one language is detected for the whole document
        found["same_language"] = None
    return found


def write(document: Document, results: Sequence[TextResult]) -> bytes:
    """Return the document with its translations; a text that was not translated stays as it is."""
    pairs = zip(document.texts, results, strict=True)
    return document.write([result.text if result.translations else text for text, result in pairs])


def only_target(models: Iterable[ModelInfo], model: str) -> str:
    """Return the language that the models translate to, if it is one; empty if there are several.

    model: "name" or "name/version" of the one to look at; empty for all
    """
    wanted = [each for each in models if model in ("", each.name, f"{each.name}/{each.version}")]
    targets = {target for each in wanted for target in each.target_languages or (each.target_language,)}
    return targets.pop() if len(targets) == 1 else ""


def translate_document(
    name: str,
    content: bytes,
    column: str | int,
    options: TranslateOptions,
    find_source: Callable[[Sequence[str], TranslateOptions], Exchange[str]],
    translate: Callable[[Sequence[str], TranslateOptions], Exchange[list[TextResult]]],
    list_models: Callable[[], Exchange[list[ModelInfo]]],
) -> Exchange[DocumentResult]:
    """Translate the file of this name; raises UnreadableDocument, or SettingsError for what is no content or no option.

    column: of a table, its name or its number; empty if it is not given
    find_source, translate: exchanges of the texts; list_models: tells the target language of a file that says it
    """
    if not isinstance(content, bytes | bytearray):
        raise SettingsError(f"the content of a document must be bytes, got {type(content).__name__}")
    if given := [each for each in READING if options.get(each) is not None]:
        raise SettingsError(f"{given[0]} is for text; a document says itself how it is written")
    from lingon.documents import read_document, says_target  # 40 ms, which most clients do not need

    language = options.get("target") or ""
    if not language and says_target(name):
        language = only_target((yield from list_models()), options.get("model") or "")
    document: Document = yield Compute(partial(read_document, name, content, language, str(column)))
    options = options_of(document, options)
    source, target = options.get("source") or "", options.get("target") or ""
    if source == AUTO:
        source = (yield from find_source(document.texts, options)) if document.texts else ""
        if source in ("", target):
            return DocumentResult(content, source, document.characters)
    results: list[TextResult] = yield from translate(document.texts, {**options, "source": source})
    failures = tuple(
        (text, result.error) for text, result in zip(document.texts, results, strict=True) if result.error is not None
    )
    written: bytes = yield Compute(partial(write, document, results))
    return DocumentResult(written, source, document.characters, failures, tuple(document.notes))
