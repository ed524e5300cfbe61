"""Regular expressions of what is protected: every one takes a time that grows linearly with the text.

The quantifiers are possessive or bounded, and none is nested in another without a character that separates the
repetitions. An expression that begins with a run of letters is tried at the beginning of a run only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lingon.segments.protection.spans import Kind, ProtectedSpan

_URL = re.compile(r"(?<![A-Za-z0-9+.\-])(?:[A-Za-z][A-Za-z0-9+.\-]{1,19}+://|www\.)(?=[\w\[])[^\s<>\"“”„«»]++")
_EMAIL = re.compile(r"(?<![\w.+\-])[\w.+\-]{1,64}+@[\w\-]{1,63}+(?:\.[\w\-]{1,63}+){1,9}+")
_ABSOLUTE_PATH = re.compile(r"(?<![\w/.~\\:\-<])(?:~|\.{1,2}+)?(?:/[\w.@%+\-]{1,255}+)++/?")
_RELATIVE_PATH = re.compile(r"(?<![\w/.~\\:\-<])[\w.\-]{1,255}+(?:/[\w.\-]{1,255}+)++")
_WINDOWS_PATH = re.compile(r"(?<!\w)(?:[A-Za-z]:\\|\\\\(?=\w))[^\s<>|*?\"]*+")
_FILE_ENDING = re.compile(r"\.[a-z][a-z0-9]{0,4}\Z")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,500}+>")
_PLACEHOLDERS = (
    re.compile(r"\{\{[^{}]{1,200}+\}\}|\{%[^{}%]{1,200}+%\}"),  # {{x}} {% x %}
    re.compile(r"[$#%]\{[^{}]{1,200}+\}"),  # ${x} #{x} %{x}
    # {} {x} {0, date} {x:.2f}
    re.compile(r"\{\s{0,4}+[\w.\-$]{0,80}+\s{0,4}+(?:,[^{}]{1,100}+|[:!][^{}\s]{1,40}+)?\}"),
    re.compile(r"%\(\w{1,64}+\)[-+#0 ]{0,5}+\d{0,3}+(?:\.\d{1,3}+)?[A-Za-z]"),  # %(x)s
    re.compile(
        r"(?<![\d%])%(?:\d{1,3}+\$)?[-+#0]{0,5}+(?:\d{1,4}+|\*)?(?:\.(?:\d{1,4}+|\*))?(?:hh|ll|[hlLzjtq])?"
        r"[diouxXeEfFgGaAcsp@](?![a-z]{3})"  # %s %1$s %-5.2f, but neither "100% done" nor "a %complete"
    ),
    re.compile(r"%%|(?<![\d%])%[A-Za-z_]\w{1,63}+%(?!%)"),  # %% %USER%
    re.compile(r"__(?=\w)(?:(?!__)\w){1,64}+__"),
    re.compile(r"(?<![^\s(\[\"'>]):[A-Za-z_]\w{0,63}+:?"),  # :name
)
_NUMBER = re.compile(r"(?<![\d.,])\d{4,}+(?:[-/:.]\d++)*+")
_SIGNS = "\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_EMOJI = re.compile(
    f"(?:[#*0-9]\ufe0f?\u20e3|[{_SIGNS}]|[\u00a9\u00ae\u203c\u2049\u2122\u2139\u24c2\u2934\u2935\u3030\u303d\u3297\u3299]\ufe0f)"
    f"[{_SIGNS}\u200d\ufe0f\u20e3\U000e0020-\U000e007f]*+"
)
_LINE = re.compile(r"([-_=*~#+.·•…\u2010-\u2015\u2500-\u25a1])\1{7,}+")
_CODE = re.compile(r"(?<![\w+/=\-])(?=[A-Za-z_+/=\-]*+[0-9])[A-Za-z0-9_+/=\-]{40,}+")

_WINDOW = 2**15  # characters that one search reads, at most 2 ms: other threads wait for it
_MARGIN = 2**10  # characters after a window; only URLs, paths, numbers, lines and codes may be longer
_PUNCTUATION = ".,;:!?'’…"
_BRACKETS = {")": "(", "]": "[", "}": "{"}


def matches(text: str) -> Iterator[ProtectedSpan]:
    """Yield all spans of all kinds but SKELETON and KEEP; they may overlap."""
    yield from _trimmed(_URL, Kind.URL, text)
    if "@" in text:
        yield from _trimmed(_EMAIL, Kind.EMAIL, text)
    yield from _paths(text)
    yield from _whole(_TAG, Kind.TAG, text)
    for pattern in _PLACEHOLDERS:
        yield from _whole(pattern, Kind.PLACEHOLDER, text)
    yield from _whole(_NUMBER, Kind.NUMBER, text)
    yield from _whole(_LINE, Kind.LINE, text)
    yield from _whole(_CODE, Kind.CODE, text)
    if not text.isascii():
        yield from _whole(_EMOJI, Kind.EMOJI, text)


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield what `pattern.finditer` does, but by searches that are short each."""
    at = 0
    while at < len(text):
        stop = at + _WINDOW
        for found in pattern.finditer(text, at, stop + _MARGIN):
            if found.start() >= stop:
                break
            whole = found if found.end() < stop else pattern.match(text, found.start()) or found
            yield whole
            if whole.end() >= stop:
                stop = whole.end()
                break
        at = stop


def _whole(pattern: re.Pattern[str], kind: Kind, text: str) -> Iterator[ProtectedSpan]:
    for found in _matches(pattern, text):
        yield ProtectedSpan(found.start(), found.end(), kind)


def _paths(text: str) -> Iterator[ProtectedSpan]:
    """Yield absolute paths with a letter, relative ones whose last name has an ending, and those of Windows."""
    if "\\" in text:
        yield from _trimmed(_WINDOWS_PATH, Kind.PATH, text)
    if "/" not in text:
        return
    for span in _trimmed(_ABSOLUTE_PATH, Kind.PATH, text):
        if any(map(str.isalpha, text[span.begin : span.end])):
            yield span
    for span in _trimmed(_RELATIVE_PATH, Kind.PATH, text):
        if _FILE_ENDING.search(text[span.begin : span.end]):
            yield span


def _trimmed(pattern: re.Pattern[str], kind: Kind, text: str) -> Iterator[ProtectedSpan]:
    """Yield the matches without the punctuation of the sentence at their end."""
    for found in _matches(pattern, text):
        end = found.start() + _length_without_punctuation(found[0])
        if end - found.start() > 1:
            yield ProtectedSpan(found.start(), end, kind)


def _length_without_punctuation(found: str) -> int:
    """Return the length up to the last character that is no punctuation; a bracket that opens in it may close it."""
    end = len(found)
    open_brackets = {close: found.count(close) - found.count(opening) for close, opening in _BRACKETS.items()}
    while end and (found[end - 1] in _PUNCTUATION or open_brackets.get(found[end - 1], 0) > 0):
        if found[end - 1] in open_brackets:
            open_brackets[found[end - 1]] -= 1
        end -= 1
    return end
