"""Filters of pairs: what is dropped, why, how many, with examples.

These filters look at one pair alone; those of duplicates are elsewhere. Texts are normalised: blanks are single spaces.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lingon.errors import LingonError, SettingsError
from lingon.extras import install_command
from lingon.identifiers import Identifiers, load_identifiers
from lingon.language_tags import canonical, primary
from lingon.scoring import WITHOUT_BLANKS
from lingon.source_language import script_of_letter, scripts_of_language
from lingon.training.config import DataSettings, LanguagePair

SPARE_CHARACTERS = 25  # that the longer side may have beyond the ratio: that of short sentences varies much
SPARE_TOKENS = 5  # likewise
SPARE_DIGITS = 2  # that one side may have alone: small numbers and months, which languages write as words
FEWEST_BYTES = 40  # of a side whose language is asked: of good sides of 20 to 40 bytes 4 % seem to be in another one
N_GRAM = 3  # words of a repetition
N_GRAM_CHARACTERS = 6  # of a repetition in languages that write no blanks between words

TOKEN_RATIO = "token_ratio"  # the reason of `PairFilters.too_long_ratio`


class Pairs(NamedTuple):
    """Rows of text."""

    sources: Sequence[str]
    targets: Sequence[str]
    scores: Sequence[float] | None = None

    def where(self, kept: Sequence[bool]) -> Pairs:
        """Return the rows that are kept."""
        scores = None if self.scores is None else list(compress(self.scores, kept))
        return Pairs(list(compress(self.sources, kept)), list(compress(self.targets, kept)), scores)


Filter = Callable[[Pairs], list[bool]]
"""Returns which rows to drop. No side is empty, except for the filter of empty sides."""


class PairFilters:
    """The filters of a pair of languages.

    reasons: of the filters that are on, in the order in which they are asked; TOKEN_RATIO, which comes after
        tokenisation, is the last

    Raises SettingsError for a filter that does not know one of the languages, LingonError for a missing extra.
    """

    def __init__(self, settings: DataSettings, languages: LanguagePair) -> None:
        self._max_token_ratio = settings.filters.max_token_ratio
        self._filters = _filters(settings, languages)
        self.reasons = (*self._filters, *(() if self._max_token_ratio is None else (TOKEN_RATIO,)))

    def reasons_of(
        self, sources: Sequence[str], targets: Sequence[str], scores: Sequence[float] | None = None
    ) -> list[str]:
        """Return the first filter that drops a pair, (rows), empty for a pair that stays.

        sources, targets: (rows), normalised
        scores: (rows), None for a corpus without scores
        """
        assert len(sources) == len(targets)
        reasons = [""] * len(sources)
        rows: Sequence[int] = range(len(sources))
        pairs = Pairs(sources, targets, scores)
        for reason, drop in self._filters.items():
            dropped = drop(pairs)
            if True not in dropped:
                continue
            for row in compress(rows, dropped):
                reasons[row] = reason
            kept = [not each for each in dropped]
            rows, pairs = list(compress(rows, kept)), pairs.where(kept)
        return reasons

    def too_long_ratio(self, source_tokens: int, target_tokens: int) -> bool:
        """Return whether one side has too many tokens for the other."""
        if self._max_token_ratio is None:
            return False
        shorter, longer = sorted((source_tokens, target_tokens))
        return longer > self._max_token_ratio * shorter + SPARE_TOKENS


def _filters(settings: DataSettings, languages: LanguagePair) -> dict[str, Filter]:
    """Return the filters that are on by their reasons, the fast ones first."""
    chosen = settings.filters
    blanks = [_has_blanks(language) for language in languages]
    filters: dict[str, Filter] = {"empty": _each(_is_empty), "ratio": _each(partial(_is_too_long, settings.max_ratio))}
    if chosen.min_score is not None:
        filters["score"] = partial(_low_scores, chosen.min_score)
    if chosen.encoding:
        filters["encoding"] = _either(_is_badly_decoded, _is_badly_decoded)
    if chosen.same_brackets:
        filters["brackets"] = _each(_have_other_brackets)
    if chosen.max_word is not None or chosen.min_mean_word or chosen.max_mean_word is not None:
        test = partial(_has_odd_words, chosen.max_word, chosen.min_mean_word, chosen.max_mean_word)
        filters["words"] = _either(*(test if each else _never for each in blanks))
    if chosen.min_letters:
        filters["letters"] = partial(_low_shares, chosen.min_letters, _letter_weights, _letter_weights)
    if chosen.min_script:
        source, target = (partial(_script_weights, _scripts(language)) for language in languages)
        filters["script"] = partial(_low_shares, chosen.min_script, source, target)
    if chosen.max_copy is not None:
        filters["copy"] = _each(partial(_are_copies, chosen.max_copy))
    if chosen.same_addresses:
        filters["addresses"] = _each(_have_other_addresses)
    if chosen.min_numbers:
        filters["numbers"] = _each(partial(_have_other_numbers, chosen.min_numbers))
    if chosen.max_repetition < 1:
        filters["repetition"] = _either(*(partial(_repeats, chosen.max_repetition, blanks=each) for each in blanks))
    if chosen.min_language:
        codes = [_codes(language) for language in languages]
        filters["language"] = _either(*(partial(_is_other_language, chosen.min_language, each) for each in codes))
    return filters


def _each(test: Callable[[str, str], bool]) -> Filter:
    """Return the filter that drops the pairs of which the test is true."""
    return partial(_drop_each, test)


def _drop_each(test: Callable[[str, str], bool], pairs: Pairs) -> list[bool]:
    return list(map(test, pairs.sources, pairs.targets))


def _either(source: Callable[[str], bool], target: Callable[[str], bool]) -> Filter:
    """Return the filter that drops the pairs of which the test of either side is true."""
    return partial(_drop_either, source, target)


def _drop_either(source: Callable[[str], bool], target: Callable[[str], bool], pairs: Pairs) -> list[bool]:
    return [source(one) or target(other) for one, other in zip(pairs.sources, pairs.targets, strict=True)]


def _never(text: str) -> bool:
    return False


# What the filters know of a language.


def _has_blanks(language: str) -> bool:
    """Return whether a language writes blanks between words."""
    return primary(language) not in WITHOUT_BLANKS


def _scripts(language: str) -> frozenset[str]:
    """Return the scripts of a language. Raises SettingsError if they are not known."""
    if found := scripts_of_language(language):
        return found
    raise SettingsError(
        "data.filters.min_script must be 0 for a language whose scripts are not known, unless its tag names one as in "
        f"{language}-Latn, got {language!r}"
    )


def _codes(language: str) -> frozenset[str]:
    """Return the codes of a language for `Identifiers`. Raises SettingsError if they do not know it."""
    if found := _identifiers().codes_of(primary(canonical(language, "the language"))):
        return found
    raise SettingsError(
        f"data.filters.min_language must be 0 for a language that the extra 'detect' does not know, got {language!r}"
    )


def _identifiers() -> Identifiers:
    """Return the identifiers of languages. Each process loads its own. Raises LingonError if they are missing."""
    if (found := load_identifiers()) is None:
        raise LingonError(
            f"data.filters.min_language needs what the extra 'detect' installs: {install_command('detect')}"
        )
    return found


# Tests of a pair: whether to drop it.


def _is_empty(source: str, target: str) -> bool:
    return not source or not target


def _is_too_long(most: float, source: str, target: str) -> bool:
    one, other = len(source), len(target)
    return one > most * other + SPARE_CHARACTERS or other > most * one + SPARE_CHARACTERS


def _low_scores(least: float, pairs: Pairs) -> list[bool]:
    if pairs.scores is None:
        return [False] * len(pairs.sources)
    return [not score >= least for score in pairs.scores]  # drops one that is no number, too


_WIDE_BRACKETS = str.maketrans("（）［］｛｝", "()[]{}")
_NO_BRACKETS = bytes(code for code in range(256) if chr(code) not in "()[]{}")


def _have_other_brackets(source: str, target: str) -> bool:
    one, other = _brackets(source), _brackets(target)
    return one != other and _left_over(one) != _left_over(other)


def _brackets(text: str) -> bytes:
    """Return the brackets of a text, with those of full width as ASCII."""
    if "（" in text or "）" in text or "［" in text or "］" in text or "｛" in text or "｝" in text:
        text = text.translate(_WIDE_BRACKETS)
    return text.encode("utf-8", "replace").translate(None, _NO_BRACKETS)


def _left_over(brackets: bytes) -> list[int]:
    """Return how many more brackets of each kind are opened than closed: -1 for a list that begins with `a)`."""
    return [brackets.count(opening) - brackets.count(closing) for opening, closing in (b"()", b"[]", b"{}")]


def _are_copies(most: int, source: str, target: str) -> bool:
    """Return whether the sides are equal apart from case, digits, punctuation and blanks.

    most: letters of a copy that stays
    """
    if len(source) <= most or len(target) <= most or not _may_be_copies(source.lower(), target.lower()):
        return False
    text = folded(source)
    return text == folded(target) and sum(map(str.isalpha, text)) > most


def _may_be_copies(source: str, target: str) -> bool:
    """Return whether two texts have as many of some common letters, which is faster than `folded`."""
    return source.count("e") == target.count("e") and source.count("n") == target.count("n")


_HOST = re.compile(r"(?:https?://|www\.)(?:www\.)?([a-z0-9.-]++)", re.ASCII | re.IGNORECASE)
_E_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]++@([\w-]++(?:\.[\w-]++)++)", re.ASCII)


def _have_other_addresses(source: str, target: str) -> bool:
    both = f"{source}\n{target}"
    return ("@" in both or "://" in both or "www." in both) and _addresses(source) != _addresses(target)


def _addresses(text: str) -> set[str]:
    """Return the last two labels of the hosts of URLs and of e-mail addresses.

    Translations link to the page in their language: to de.example.com instead of en.example.com. In German an address
    may be the first part of a word: "sales@example.com-Konto".
    """
    hosts = (found[1].strip(".") for pattern in (_HOST, _E_MAIL) for found in pattern.finditer(text))
    labels = (host.lower().split(".")[-2:] for host in hosts)
    return {".".join([*others, last.partition("-")[0]]) for *others, last in labels}


_DIGIT = re.compile(r"\d")
_NO_DIGITS = bytes(code for code in range(256) if chr(code) not in "123456789")


def _have_other_numbers(least: float, source: str, target: str) -> bool:
    one, other = _digits(source), _digits(target)
    if one == other:
        return False
    common, both = sum((Counter(one) & Counter(other)).values()), len(one) + len(other)
    return 2 * common < least * both and both - 2 * common > SPARE_DIGITS


def _digits(text: str) -> str:
    """Return the digits of a text as those of ASCII, sorted, without zeros.

    Sorted digits are the same however thousands, decimals and dates are written, and without zeros "1.50" is "1.5" and
    "1 million" is "1,000,000". Vázquez et al. (2019) leave the zeros out too.
    """
    if text.isascii():
        return "".join(sorted(text.encode().translate(None, _NO_DIGITS).decode()))
    found = "".join(_DIGIT.findall(text))
    if not found.isascii():
        found = "".join(str(unicodedata.decimal(digit)) for digit in found)
    return "".join(sorted(found.replace("0", "")))


# Tests of one side: whether to drop its pair.

_MARKS = "Ã\ufffdÂâãÐÎØ"  # with one of which each match of the next expression begins
_BADLY_DECODED = re.compile(
    "\ufffd|[âã]€|[ÃÐ][¡-º¼-¿]|Â[¡-ª¬-º¼-¿]|Î[±-º¼-¿]|Ø§"
    # After a word that ends with Ã there may be a quotation mark or a dash. No letter follows that.
    r"|Ã[»€‚ƒ„…†‡ˆ‰Š‹Œ‘’“”•–—˜™š›œŸ](?=[^\W\d_])"
)
"""The character that stands for undecodable bytes, and UTF-8 that was read as Latin-1 or Windows-1252: Ã¤ for ä."""


def _is_badly_decoded(text: str) -> bool:
    if text.isascii() or not any(map(text.__contains__, _MARKS)):  # takes a tenth of the time of the expression
        return False
    return _BADLY_DECODED.search(text) is not None


def _has_odd_words(most: int | None, least_mean: float, most_mean: float | None, text: str) -> bool:
    blanks = text.count(" ")
    mean = (len(text) - blanks) / (blanks + 1)
    if mean < least_mean or (most_mean is not None and mean > most_mean):
        return True
    return most is not None and len(text) > most and max(map(len, text.split(" "))) > most


def _repeats(most: float, text: str, *, blanks: bool) -> bool:
    """Return whether more than this share of the n-grams of a text are there before: of words, or of characters."""
    units, size = (text.split(" "), N_GRAM) if blanks else (text, N_GRAM_CHARACTERS)
    count = len(units) - size + 1
    # At most as many n-grams are repetitions as units are, and those are counted faster.
    if len(units) - len(set(units)) <= most * count:
        return False
    return count - len(set(zip(*(units[begin:] for begin in range(size)), strict=False))) > most * count


def _is_other_language(least: float, codes: frozenset[str], text: str) -> bool:
    """Return whether neither identifier takes a text for its language; codes: of the language."""
    read = text.encode("utf-8", "replace")  # the identifiers read no surrogates, which JSON can have
    return len(read) >= FEWEST_BYTES and not _identifiers().confirms(read.decode(), codes, least)


# Shares of kinds of characters, by NumPy for many texts at once: a quarter of the time of an expression for each text.

COUNTED = 32  # bits of a weight for the characters that are looked for; those above count all
CODE_POINTS = sys.maxunicode + 1
Weights = NDArray[np.int64]
"""Of each code point, (CODE_POINTS): 1 << COUNTED if it is counted, and 1 more if it is looked for.

The sum over a text has both counts.
"""


def _low_shares(
    least: float, source_weights: Callable[[], Weights], target_weights: Callable[[], Weights], pairs: Pairs
) -> list[bool]:
    """Return which pairs have a side of whose characters too small a share are looked for.

    source_weights, target_weights: return weights, so that a filter can be sent to other processes without them
    """
    low = [
        _low_share(least, texts, weights())
        for texts, weights in ((pairs.sources, source_weights), (pairs.targets, target_weights))
    ]
    found: list[bool] = (low[0] | low[1]).tolist()
    return found


def _low_share(least: float, texts: Sequence[str], weights: Weights) -> NDArray[np.bool_]:
    """Return of which texts, none empty, too small a share of the characters are looked for, (texts)."""
    if not texts:
        return np.zeros(0, np.bool_)
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    begins = np.cumsum([0, *map(len, texts[:-1])])
    sums = np.add.reduceat(weights[codes], begins)
    low: NDArray[np.bool_] = (sums & ((1 << COUNTED) - 1)) < least * (sums >> COUNTED)
    return low


@functools.cache
def _letter_weights() -> Weights:
    """Return weights to find letters among all characters but blanks. Vowel signs count as letters."""
    characters = [chr(code) for code in range(CODE_POINTS)]
    letters = [unicodedata.category(character)[0] in "LM" for character in characters]
    return _weights(letters, [character != " " for character in characters])


@functools.cache
def _script_weights(scripts: frozenset[str]) -> Weights:
    """Return weights to find the letters of these scripts among those of all scripts of living languages."""
    letters = (chr(code) for code in range(CODE_POINTS))
    found = [script_of_letter(letter) if letter.isalpha() else "" for letter in letters]
    return _weights([script in scripts for script in found], [script != "" for script in found])


def _weights(looked_for: Sequence[bool], counted: Sequence[bool]) -> Weights:
    return np.array(counted, np.int64) << COUNTED | np.array(looked_for, np.int64)


# The key of near-duplicates, and of copies.

_ASCII_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum())
_ZEROS = bytes(48 if chr(code) in "123456789" else code for code in range(256))
_DIGIT_RUN = re.compile(b"00+")


def folded(text: str) -> str:
    """Return a text with its case folded, each number replaced by 0, and without punctuation, symbols and blanks.

    Two texts of the same words have the same key.
    """
    text = text.casefold()
    if not text.isascii():
        text = _signs().sub(lambda run: _kept_of(run[0]), text)
    found = text.encode().translate(_ZEROS, _ASCII_SIGNS)  # five times as fast as str.translate
    if b"00" in found:
        found = _DIGIT_RUN.sub(b"0", found)
    return found.decode()


@functools.lru_cache(maxsize=4096)
def _kept_of(run: str) -> str:
    """Return what stays of a run of characters of `_signs`."""
    kept = (character for character in run if unicodedata.category(character)[0] in "LMN")
    return "".join("0" if character.isdecimal() else character for character in kept)


@functools.cache
def _signs() -> re.Pattern[str]:
    """Return an expression for runs of digits and of signs beyond ASCII, and for all characters beyond the BMP.

    A class of many ranges beyond the BMP would take ten times as long.
    """
    characters = ((code, unicodedata.category(chr(code))) for code in range(128, 0x10000))
    codes = [code for code, category in characters if category == "Nd" or category[0] in "PSZC"]
    return re.compile(f"[{_ranges([*codes, *range(0x10000, CODE_POINTS)])}]+")


def _ranges(codes: Sequence[int]) -> str:
    """Return code points in ascending order as the content of a class of a regular expression."""
    found: list[list[int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in found)
