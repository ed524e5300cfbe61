"""Translation memories in files, for the verbs that translate: texts that one has are not sent to the model."""

from __future__ import annotations

import html
import importlib
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Protocol, Unpack

from lingon.cli.backend import BackendOptions, ListTranslator, open_translator
from lingon.cli.options import MemoryFiles
from lingon.client.calls import TextSequence
from lingon.client.options import MemoryOptions, ScoreOptions, TranslateOptions
from lingon.client.results import MemoryMatch, ScoreResult, TextResult, TextWarning, Translation
from lingon.errors import SettingsError
from lingon.extras import name_missing_extra
from lingon.language_tags import is_same_language
from lingon.memories.files import XML_SUFFIXES, read_segments, suffix_of, write_segments
from lingon.memories.keys import EXACT, IN_CONTEXT, NO_CONTEXT, context_key
from lingon.memories.segment import MOST_SEGMENTS, MOST_TEXT, WHOLLY, Segment
from lingon.message_batches import MOST_BYTES
from lingon.segments.term_steps import SentenceTerms
from lingon.source_language import AUTO
from lingon.terms.term_list import TermList
from lingon.text import normalise

FROM_MEMORY = "from_memory"
_TAG = re.compile(r"<[^<>]*+>")
SUSPECT = frozenset(
    ["empty", "repetition", "copy", "wrong_language", "length_ratio", "length", "numbers", "unreadable"]
)
"""The warnings about a translation that no memory should have."""


NO_MEMORY = MemoryFiles()


class LocalMemory(Protocol):
    """See `lingon.memories.local`."""

    digest: str

    def segments_for(self, text: str, language: str, *, fuzzy: bool = False) -> list[Segment]:
        """Return the segments that the translation of a text without markup may need."""

    def exact(self, text: str, before: str = "", after: str = "") -> Segment | None:
        """Return the segment of this text, in the same case, or None; before, after: the neighbours of the text."""


@contextmanager
def open_with_memory(
    backend: BackendOptions, options: MemoryFiles, request: TranslateOptions, *, fuzzy: bool = False
) -> Iterator[ListTranslator]:
    """Give a translator that asks a memory first, and writes new pairs to one when the block ends without an error.

    request: tells the languages, else the only model of the translator does
    fuzzy: whether results have similar texts too
    """
    with ExitStack() as stack:
        translator = stack.enter_context(open_translator(backend))
        if options == NO_MEMORY:
            yield translator
            return
        languages = languages_of(translator, options, request)
        memory = None
        if options.memory:
            memory = open_memory(stack.enter_context(memory_folder(options.memory, languages)))
        pairs = None
        if options.write_memory:
            pairs = NewPairs(stack.enter_context(TemporaryFile("w+", encoding="utf-8", newline="\n")))
        yield MemoryTranslator(translator, memory, pairs, language=languages[0], fuzzy=fuzzy)
        if options.write_memory is not None and pairs is not None and pairs.count:
            add_pairs(options.write_memory, pairs.segments(), languages)


@contextmanager
def memory_folder(path: Path, languages: tuple[str, str]) -> Iterator[Path]:
    """Give a temporary folder with the memory of a file. Raises CorpusError for a bad file.

    languages: source and target, see `languages_of`
    """
    with name_missing_extra("--memory", ["serve"]):
        local = importlib.import_module("lingon.memories.local")
    with local.folder_of(path, *languages) as folder:
        yield folder


def open_memory(folder: Path) -> LocalMemory:
    """Return the memory of a folder that `memory_folder` gave, in any process."""
    memory: LocalMemory = importlib.import_module("lingon.memories.local").open_folder(folder)
    return memory


def add_pairs(path: Path, pairs: Iterable[Segment], languages: tuple[str, str]) -> None:
    """Write segments to a file, after those that it has. It is replaced when all are written."""
    known = read_segments(path, *languages) if path.exists() else ()
    write_segments(path, chain(known, pairs), *languages)


def languages_of(translator: ListTranslator, options: MemoryFiles, request: TranslateOptions) -> tuple[str, str]:
    """Return the source and the target language, which a file with languages needs. A table has none.

    request: tells the languages, else the models that translate what it tells, if all are of one pair
    """
    source, target = request.get("source") or "", request.get("target") or ""
    wanted = request.get("model") or ""
    if source == AUTO or not (source and target):
        models = [each for each in translator.list_models() if wanted in ("", each.name, f"{each.name}/{each.version}")]
        pairs = {(each.source_language, each.target_language) for each in models}
        if source == AUTO:  # a text may be in the source language of any model
            source = ""
        else:
            pairs = {(one, other) for one, other in pairs if _fits(one, source) and _fits(other, target)}
        if len(pairs) == 1 and not any(each.source_languages for each in models):
            ((first, second),) = pairs
            source, target = source or first, target or second
    files = [path for path in (options.memory, options.write_memory) if path is not None]
    named = next((path for path in files if suffix_of(path.name) in XML_SUFFIXES), None)
    if named is not None and not (source and target):
        raise SettingsError(f"the texts of {named.name} have a language: give --source and --target")
    return source, target


def _fits(language: str, asked: str) -> bool:
    return not asked or is_same_language(language, asked)


class NewPairs:
    """The pairs that were translated, in a file: a run may have millions."""

    def __init__(self, file: IO[str]) -> None:
        """file: empty, to write and to read."""
        self._file = file
        self._seen: set[bytes] = set()
        self._lock = threading.Lock()  # several requests are in flight
        self.count = 0

    def add(self, source: str, target: str, origin: str) -> None:
        """Add a pair, once for each source."""
        key = blake2b(source.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            if key not in self._seen:
                self._seen.add(key)
                self.count += 1
                self._file.write(json.dumps([source, target, origin, time.time_ns() // 1_000_000]) + "\n")

    def segments(self) -> Iterator[Segment]:
        """Yield the pairs as segments."""
        self._file.seek(0)
        for line in self._file:
            source, target, origin, changed = json.loads(line)
            yield Segment(source, target, origin=origin, changed=changed)


class MemoryTranslator:
    """A translator that asks a memory first: for each text, and then, with its request, for each of its sentences.

    pairs: is given what the model translates
    """

    def __init__(
        self,
        translator: ListTranslator,
        memory: LocalMemory | None,
        pairs: NewPairs | None,
        *,
        around: tuple[str, str] | None = None,
        language: str = "",
        fuzzy: bool = False,
    ) -> None:
        """around: what is before and after the texts of a call in their document, see `between`.

        language: of the texts, BCP-47, or empty; fuzzy: whether results have similar texts of the memory
        """
        self._translator, self._memory, self._pairs, self._around = translator, memory, pairs, around
        self._language, self._fuzzy = language, fuzzy
        self.find_source, self.list_models = translator.find_source, translator.list_models
        self.close = translator.close

    def between(self, before: str, after: str) -> MemoryTranslator:
        """Return this translator for consecutive texts of one document, each of which has neighbours there.

        before, after: the texts around them; empty at an end of the document
        """
        own = (self._translator, self._memory, self._pairs)
        return MemoryTranslator(*own, around=(before, after), language=self._language, fuzzy=self._fuzzy)

    def translate(self, texts: TextSequence, **options: Unpack[TranslateOptions]) -> list[TextResult]:
        """See Client. A text that the memory has is not sent. What it has for sentences goes with their text."""
        texts = list(texts)
        neighbours = [("", "")] * len(texts)
        if self._around is not None:
            before, after = self._around
            neighbours = list(zip([before, *texts], [*texts[1:], after], strict=False))
        found = [self.known(text, options, *each) for text, each in zip(texts, neighbours, strict=True)]
        asked = [text for text, known in zip(texts, found, strict=True) if known is None]
        rest = iter(self._asked(asked, options))
        results = [next(rest) if known is None else known for known in found]
        if self._pairs is not None:
            for text, result, known in zip(texts, results, found, strict=True):
                if known is None and (pair := _pair(text, result, options)) is not None:
                    self._pairs.add(*pair, f"MT! {result.model}/{result.version}")
        return results

    def _asked(self, texts: Sequence[str], options: TranslateOptions) -> Iterator[TextResult]:
        """Yield the results of texts that the memory lacks, with what it has for their sentences."""
        batch, segments = list[str](), list[Segment]()
        for text in texts:
            own = self._segments_for(text, options)
            if batch and (len(segments) + len(own) > MOST_SEGMENTS or _size(segments) + _size(own) > MOST_BYTES):
                yield from self._with_segments(batch, segments, options)
                batch, segments = [], []
            batch.append(text)
            segments += own
        if batch:
            yield from self._with_segments(batch, segments, options)

    def _with_segments(
        self, texts: list[str], segments: Sequence[Segment], options: TranslateOptions
    ) -> list[TextResult]:
        if segments:
            options = {**options, "memory": MemoryOptions(segments=list(dict.fromkeys(segments)))}
        return self._translator.translate(texts, **options)

    def _segments_for(self, text: str, options: Mapping[str, Any]) -> list[Segment]:
        """Return what the memory has for a text and its sentences, as far as one request takes it."""
        if self._memory is None or _is_guided(options):
            return []
        found, size = list[Segment](), 0
        for each in self._memory.segments_for(_words_of(text, options), self._language, fuzzy=self._fuzzy):
            size += _size([each])
            if len(found) == MOST_SEGMENTS or size > MOST_BYTES:
                break
            found.append(each)
        return found

    def known(self, text: str, options: Mapping[str, Any], before: str = "", after: str = "") -> TextResult | None:
        """Return the result of a text that the memory has, or None.

        before, after: the neighbours of the text in its document, of which the same words count; empty if not known
        """
        plain = plain_text(text, options)
        if self._memory is None or plain is None or _is_guided(options):
            return None
        around = _words_of(before, options), _words_of(after, options)
        segment = self._memory.exact(plain, *around)
        if segment is None or _misses_terms(segment, options):
            return None
        target = html.escape(segment.target, quote=False) if _is_markup(options) else segment.target
        stripped = text.strip()
        begin = text.index(stripped)
        whole = text[:begin] + target.strip() + text[begin + len(stripped) :]
        same = context_key(segment.before, segment.after) == context_key(*around) != NO_CONTEXT
        span, score = (begin, begin + len(stripped)), IN_CONTEXT if same else EXACT
        match = MemoryMatch("", segment.source, segment.target, score, span, used=True, origin=segment.origin)
        warning = TextWarning(FROM_MEMORY, WHOLLY)
        return TextResult(translations=(Translation(whole, 0.0, "end"),), warnings=(warning,), matches=(match,))

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """See Client."""
        return self._translator.score(pairs, **options)


def _size(segments: Sequence[Segment]) -> int:
    """Return the bytes of segments in a request."""
    return sum(each.message().ByteSize() for each in segments)


def _misses_terms(segment: Segment, options: Mapping[str, Any]) -> bool:
    """Return whether a translation lacks a term of the options. Those of glossaries are known to the server only."""
    if options.get("glossaries"):
        return True
    wanted = TermList.of(options.get("terms") or ()).for_texts([segment.source], options.get("source") or "")
    if not wanted:
        return False
    terms = SentenceTerms.of(wanted, options.get("source") or "", options.get("target") or "")
    return bool(terms.check(segment.target, terms.wanted(segment.source)).missed)


def _is_guided(options: Mapping[str, Any]) -> bool:
    """Return whether options ask for another translation than that of a memory."""
    names = ("target_prefix", "alternatives", "forbidden_words", "forced_words")
    return options.get("format") == "pieces" or any(options.get(name) for name in names)


def _is_markup(options: Mapping[str, Any]) -> bool:
    return options.get("format") in ("html", "xml")


def plain_text(text: str, options: Mapping[str, Any]) -> str | None:
    """Return a text without markup, or None for one with tags."""
    if not _is_markup(options):
        return text
    return None if "<" in text else html.unescape(text)


def _words_of(text: str, options: Mapping[str, Any]) -> str:
    """Return a text without tags, as memories have it."""
    return html.unescape(_TAG.sub("", text)) if _is_markup(options) else text


def _pair(text: str, result: TextResult, options: TranslateOptions) -> tuple[str, str] | None:
    """Return a text without markup and its translation, or None for what no memory should have."""
    if result.error is not None or not result.translations or _is_guided(options):
        return None
    if any(warning.code in SUSPECT for warning in result.warnings):
        return None
    plain, translation = plain_text(text, options), plain_text(result.text, options)
    if plain is None or translation is None:
        return None
    source, target = plain.strip(), translation.strip()
    fits = normalise(source) and normalise(target) and max(len(source), len(target)) <= MOST_TEXT
    return (source, target) if fits else None
