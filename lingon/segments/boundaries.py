"""Where the sentences of a text are: paragraphs are cut first, then sentencex reads them in short blocks.

sentencex has rules for 244 languages and reads up to 40 MB a second, but only short texts are safe for it: its time is
quadratic in a paragraph of CJK full stops or open quotes (16,000 characters take 0.3 s), and past 10,000 characters it
loses some. Hence the blocks, and only its offsets are used, never its strings.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from lingon.segments.openings import goes_on
from lingon.text import INVISIBLE

Span = tuple[int, int]  # code points; the end is exclusive

BLOCK = 1000  # characters of a paragraph that sentencex reads at once: at most 1 ms
LONGEST = 4000  # characters of a sentence; a longer one is cut after a word
WITHOUT_LETTERS = 100  # characters; sentencex does not read more of them, since they end no sentence
LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"  # the characters at which str.splitlines ends a line

_VISIBLE = re.compile(f"[^\\s{INVISIBLE}]")
_SPACE = re.compile(r"\s")
_LETTER = re.compile(r"[^\W\d_]")
_LETTERS = re.compile(r"[^\W\d_]{1,64}+")  # or numerals that are no decimal digits, such as ½ and Ⅳ
_LINE_BREAK = re.compile(f"[{LINE_BREAKS}]")
_END = f"(?>\r\n|[{LINE_BREAKS}])"
_BLANKS_IN_LINE = f"[ \t\x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000{INVISIBLE}]*+"
_PARAGRAPH_BREAK = re.compile(f"{_END}{_BLANKS_IN_LINE}{_END}|\u2029")
_CLOSING = re.compile("[」』】》〉〕）]+")  # belong to the sentence before them; sentencex knows only some
_PLAIN = re.compile(r"[\w ,'’-]*+.?")  # nothing that ends a sentence before the last character
_BLANKS = "".join(each for each in map(chr, (*range(0x3001), 0xFEFF)) if not _VISIBLE.match(each))  # no others exist
_ENDS_WITHOUT_SPACE = "।॥།༎။៕።፧"  # Devanagari, Tibetan, Burmese, Khmer, Ethiopic


def lines(text: str) -> Iterator[Span]:
    """Yield the lines of a text that have a visible character, from the first to the last such character."""
    return _between(text, _LINE_BREAK)


def paragraphs(text: str) -> Iterator[Span]:
    """Yield what blank lines or paragraph separators (U+2029) separate; a single line break is white space."""
    return _between(text, _PARAGRAPH_BREAK)


def sentences(text: str, paragraph: Span, language: str) -> Iterator[Span]:
    """Yield the sentences of a paragraph, without the blanks around them.

    language: BCP-47, of the text; sentencex has rules for languages of the same kind if it does not know this one
    A number or a mark without letters belongs to the sentence after it, or before it at the end of a paragraph: a model
    makes up words for "1." alone.
    """
    begin, end = paragraph
    if end - begin <= BLOCK and _PLAIN.fullmatch(text, begin, end):
        yield paragraph
        return
    whole: Span | None = None  # a sentence with letters
    marks: Span | None = None  # what follows it without letters
    for begin, end in _candidates(text, paragraph, language.partition("-")[0].lower()):
        if marks is not None and end - marks[0] > LONGEST:
            yield from filter(None, (whole, marks))
            whole = marks = None
        first = begin if marks is None else marks[0]
        if _LETTER.search(text, begin, min(end, begin + LONGEST)) is None:
            marks = first, end
            continue
        if whole is not None:
            yield whole
        whole, marks = (first, end), None
    if whole is not None and marks is not None and marks[1] - whole[0] <= LONGEST:
        whole, marks = (whole[0], marks[1]), None
    yield from filter(None, (whole, marks))


def _between(text: str, separator: re.Pattern[str]) -> Iterator[Span]:
    """Yield what is between separators, without the blanks around it, unless it is blank."""
    begin = next_visible(text, 0, len(text))
    while begin < len(text):
        found = separator.search(text, begin)
        end = found.start() if found else len(text)
        yield begin, trimmed_end(text, begin, end)
        begin = next_visible(text, end, len(text))


def has_letters(text: str, begin: int, end: int) -> bool:
    """Whether a span has a letter; numerals of any script are none."""
    return any(any(map(str.isalpha, found[0])) for found in _LETTERS.finditer(text, begin, end))


def is_blank(text: str) -> bool:
    """Whether a text has only white space and invisible characters."""
    return _VISIBLE.search(text) is None


def has_space(separator: str) -> bool:
    """Whether a separator has white space; invisible characters are none."""
    return _SPACE.search(separator) is not None


def ends_without_space(text: str) -> bool:
    """Whether the script of the last character puts no space after the end of a sentence."""
    return unicodedata.east_asian_width(text[-1]) in "WFH" or text[-1] in _ENDS_WITHOUT_SPACE


def trimmed_end(text: str, begin: int, end: int) -> int:
    """Return the end of a span without the blanks at its end."""
    return begin + len(text[begin:end].rstrip(_BLANKS))


def without_blanks_around(text: str) -> str:
    """Return a text without the white space and the invisible characters at its begin and its end."""
    begin = next_visible(text, 0, len(text))
    return text[begin : trimmed_end(text, begin, len(text))]


def next_visible(text: str, begin: int, end: int) -> int:
    """Return the place of the first visible character; end without one."""
    found = _VISIBLE.search(text, begin, end)
    return found.start() if found else end


def _candidates(text: str, paragraph: Span, language: str) -> Iterator[Span]:
    """Yield spans that begin and end with a visible character, with blanks or nothing between them."""
    begin, last = paragraph
    while begin < last:
        for end in _ends(text, begin, last, language):
            yield begin, trimmed_end(text, begin, end)
            begin = next_visible(text, end, last)


def _ends(text: str, begin: int, last: int, language: str) -> Iterable[int]:
    """Return where the next sentences end, at least one; the longer the sentence, the longer the block."""
    stop = min(begin + BLOCK, last)
    letter = _LETTER.search(text, begin, stop)
    stop = letter.start() if letter else stop
    if stop - begin > WITHOUT_LETTERS:
        return [_after_word(text, begin, stop, stop)]
    for size in (BLOCK, 2 * BLOCK, LONGEST):
        stop = min(begin + size, last)
        found = [*_ends_in_block(text, begin, stop, last, language), *([last] if stop == last else [])]
        if found:
            return found
    return [_after_word(text, begin, stop, last)]


def _ends_in_block(text: str, begin: int, stop: int, last: int, language: str) -> Iterator[int]:
    """Yield the ends of the sentences in a block, except the last one, which may go on after it."""
    from sentencex import get_sentence_boundaries  # not at the top: clients read markup, and do not install it

    block = _LINE_BREAK.sub(" ", text[begin:stop])
    visible = after = first = begin  # several ends may be within one run of blanks, which is read once
    for each in get_sentence_boundaries(language, block)[:-1]:
        end = begin + each["end_index"]
        if end > after:
            visible, after = trimmed_end(text, begin, end), next_visible(text, end, last)
            if visible == after and (closing := _CLOSING.match(text, after, last)):
                end = visible = closing.end()
                after = next_visible(text, end, last)
        is_end = has_space(text[visible:after]) or ends_without_space(text[visible - 1])
        if after < last and is_end and not goes_on(text, first, visible, after, language):
            yield end
            first = after


def _after_word(text: str, begin: int, stop: int, last: int) -> int:
    """Return the end of the last word before `stop`, or if that is the first one, its own end."""
    words = text[begin:stop].rsplit(None, 1)
    if text[stop - 1].isspace():
        return stop
    if len(words) == 2:
        return stop - len(words[1])
    found = _SPACE.search(text, stop, last)
    return found.start() if found else last
