"""Converts between text and the ids of a model: normalisation, special ids, the sentencepiece tokenizer.

A text that a model cannot read whole is split after sentences, else between words, else in a word.
"""

from __future__ import annotations

import copy
import functools
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lingon.errors import BundleError, SettingsError
from lingon.moses import WORD_END, MosesPieces

if TYPE_CHECKING:
    import sentencepiece  # not in the base install, whose clients normalise text too

    Segmenter: TypeAlias = sentencepiece.SentencePieceProcessor | MosesPieces

PAD, BOS, EOS, UNK = 0, 1, 2, 3
"""Ids of the special pieces, the same in every vocabulary that Lingon trains."""

FORBIDDEN = (PAD, BOS, UNK)
"""Ids that are never generated: at inference the distribution is over all other ids."""

INVISIBLE = "".join(
    (
        r"\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f",
        r"\u00ad\u200b\u202a-\u202e\u2060\u2066-\u2069\ufeff",
    )
)
"""The characters that are removed from every text, as in a class of a regular expression.

The control characters that are missing here are white space (`str.isspace`).
"""

_INVISIBLE = re.compile(f"[{INVISIBLE}]")


def normalise(text: str) -> str:
    """Invisible characters removed, NFC, runs of white space made one space, none at the begin and the end.

    translation.proto lists the characters: clients that count in normalised texts have to do the same.
    """
    return " ".join(to_nfc(_INVISIBLE.sub("", text)).split())


def common_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the number of characters with which both texts begin, or of tokens."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:  # the usual case, without a loop
        return shorter
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), shorter)


def is_invisible(character: str) -> bool:
    """Return whether `normalise` removes a character."""
    return _INVISIBLE.match(character) is not None


def printable(text: str) -> str:
    """Return the text with escapes for characters that move the cursor, end the line or change the writing
    direction.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def to_nfc(text: str) -> str:
    """Return the text in Unicode NFC, in a time that grows linearly with its length."""
    return unicodedata.normalize("NFC", _sort_marks(text))


def _sort_marks(text: str) -> str:
    """Return a text with the same NFC form, whose combining marks on each letter are sorted.

    unicodedata sorts the marks by insertion: 16,000 marks on one letter took 70 ms, 128,000 took 19 s. So a text that
    is long enough for this to matter gets its marks sorted first.
    """
    if len(text) <= LONG or text.isascii():
        return text
    letters = text.translate({ord(letter): unicodedata.normalize("NFD", letter) for letter in set(text)})
    marks = "".join(filter(unicodedata.combining, set(letters)))
    if not marks:
        return letters
    runs = re.compile(f"[{marks}]{{2,}}+")
    return runs.sub(lambda run: "".join(sorted(run[0], key=unicodedata.combining)), letters)


LONG = 1000  # characters: up to this length unicodedata needs at most 0.25 ms to sort the marks


@dataclass(frozen=True, slots=True)
class LanguageTokens:
    """The tokens that name a pair to a model of several languages.

    before, after: source ids before the pieces of a text, and after its end token if the model reads one
    forced: target ids that every translation begins with, and that are not part of it
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    forced: tuple[int, ...] = ()


def _piece_text(pieces: Segmenter, token: int) -> str:
    if token <= UNK or pieces.is_byte(token):
        return ""
    return str(pieces.id_to_piece(token)).replace("\u2581", " ").replace(WORD_END, " ")


class Tokenizer:
    """One sentencepiece model for both languages, or one each. All have the special ids above.

    Two vocabularies of Moses pieces may stand for them: see lingon.moses.

    source_end: whether a source ends with the end token. The models of OpenNMT read none.
    source_table, target_table: all pieces as the vocabularies write them
    """

    JOINT = ("tokenizer.model",)
    SEPARATE = ("source.model", "target.model")

    def __init__(self, source: bytes, target: bytes | None = None, *, source_end: bool = True) -> None:
        """source, target: serialised models. Without target, source is used for both languages."""
        self.languages = LanguageTokens()  # with which sources are encoded
        self.source_end = source_end
        self._token_texts: dict[int, str] = {}  # at most one entry for each piece of the vocabulary
        self._source_texts: dict[int, str] = {}  # as well
        self._target_texts: dict[int, str] = {}
        self._models = (source,) if target is None else (source, target)
        self.source, self.source_table = _load(source, (self.JOINT if target is None else self.SEPARATE)[0])
        self.target, self.target_table = (
            (self.source, self.source_table) if target is None else _load(target, self.SEPARATE[1])
        )

    @classmethod
    def read(cls, folder: Path) -> Tokenizer:
        """Return the tokenizer of the files in folder."""
        for names in (cls.JOINT, cls.SEPARATE):
            if all((folder / name).is_file() for name in names):
                return cls._read(folder, names)
        raise BundleError(f"{folder}: has neither {cls.JOINT[0]} nor {' and '.join(cls.SEPARATE)}")

    @classmethod
    def _read(cls, folder: Path, names: Sequence[str]) -> Tokenizer:
        try:
            return cls(*((folder / name).read_bytes() for name in names))
        except BundleError as error:
            raise BundleError(f"{folder}/{error}") from None

    def files(self) -> dict[str, bytes]:
        """Return the files of this tokenizer by name, as `read` expects them."""
        names = self.JOINT if len(self._models) == 1 else self.SEPARATE
        return dict(zip(names, self._models, strict=True))

    @functools.cached_property
    def moses(self) -> MosesPieces | None:
        """The target vocabulary if it is one of Moses pieces: then a text is not its pieces, one after the other."""
        return self.target if isinstance(self.target, MosesPieces) else None

    def sentencepieces(self, user: str) -> list[sentencepiece.SentencePieceProcessor]:
        """Return the models of both sides. Raises SettingsError, which names their user, for Moses pieces."""
        found = [side for side in (self.source, self.target) if not isinstance(side, MosesPieces)]
        if len(found) < 2:
            raise SettingsError(f"{user} needs a vocabulary of sentencepiece; this model has Moses pieces")
        return found

    @functools.cached_property
    def joint(self) -> bool:
        """Whether both languages have one vocabulary: one model for both, or two that number the same pieces alike."""
        if len(self._models) == 1 or self.source_vocab != self.target_vocab:
            return len(self._models) == 1
        return self.source_table == self.target_table

    @property
    def source_vocab(self) -> int:
        """The number of source pieces."""
        return int(self.source.get_piece_size())

    @property
    def target_vocab(self) -> int:
        """The number of target pieces."""
        return int(self.target.get_piece_size())

    @functools.cached_property
    def unreadable(self) -> frozenset[int]:
        """The source ids of an unknown piece, and of the bytes in which rare characters are spelled."""
        is_byte = of_all_pieces(self.source, self.source.is_byte)
        return frozenset(token for token, byte in enumerate(is_byte) if token == UNK or byte)

    def piece_text(self, token: int) -> str:
        """Return the text of a target token, with a space before a word, empty for bytes and special ids."""
        if token not in self._target_texts:
            self._target_texts[token] = _piece_text(self.target, token)
        return self._target_texts[token]

    def source_piece_text(self, token: int) -> str:
        """Return the text of a source token: see `piece_text`."""
        if token not in self._source_texts:
            self._source_texts[token] = _piece_text(self.source, token)
        return self._source_texts[token]

    def for_languages(self, tokens: LanguageTokens) -> Tokenizer:
        """Return this tokenizer for a pair of languages. The two share their models."""
        other = copy.copy(self)
        other.languages = tokens
        return other

    def with_source_end(self, *, source_end: bool) -> Tokenizer:
        """Return this tokenizer for a model whose sources end so. The two share their models."""
        other = copy.copy(self)
        other.source_end = source_end
        return other

    def encode_source(self, text: str) -> list[int]:
        """Return ids of a normalised source text, with the end token and the tokens of the languages."""
        return self.framed(self.source.encode(text))

    def framed(self, pieces: Sequence[int]) -> list[int]:
        """Return a source of these pieces, with the end token if the model reads one, and the tokens of the languages.

        Without any piece the end token stands alone: a model reads one token at least.
        """
        return [*self.languages.before, *ended(pieces, source_end=self.source_end), *self.languages.after]

    def without_languages(self, source_ids: Sequence[int]) -> Sequence[int]:
        """Return the tokens of a source that `framed` made, without those of the languages."""
        return source_ids[len(self.languages.before) : len(source_ids) - len(self.languages.after)]

    def unframed(self, source_ids: Sequence[int]) -> Sequence[int]:
        """Return the pieces of a source that `framed` made."""
        return without_end(self.without_languages(source_ids))

    def encode_target(self, text: str) -> list[int]:
        """Return ids of a normalised target text, without begin and end tokens."""
        return list(self.target.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the target text of ids. Special ids are skipped."""
        return str(self.target.decode([token for token in ids if token > UNK]))

    def decode_token(self, token: int) -> str:
        """Return the target text of one id on its own; kept, because streams ask for it at every token."""
        text = self._token_texts.get(token)
        if text is None:
            text = self._token_texts[token] = self.decode([token])
        return text

    def source_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the source pieces of ids as the vocabulary writes them."""
        return [self.source_table[token] for token in ids]

    def target_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the target pieces of ids as the vocabulary writes them."""
        return [self.target_table[token] for token in ids]


def ended(pieces: Sequence[int], *, source_end: bool) -> Sequence[int]:
    """Return the pieces of a source with the end token, if the model reads one or there is no piece."""
    return [*pieces, EOS] if source_end or not pieces else pieces


def without_end(source: Sequence[int]) -> Sequence[int]:
    """Return the pieces of a source that `ended` made: no text becomes the end token."""
    return source[:-1] if source[-1] == EOS else source


BLOCK = 4096  # pieces that sentencepiece is asked for at once; it holds the lock of Python for 0.4 ms meanwhile


def of_all_pieces(vocabulary: Segmenter, ask: Callable[[Any], Any]) -> list[Any]:
    """Return what a method of a vocabulary, such as `is_byte`, says of each piece.

    Sentencepiece answers a list of ids in a third to a tenth of the time of a call for each.
    """
    ids = range(vocabulary.get_piece_size())
    if isinstance(vocabulary, MosesPieces):
        return list(map(ask, ids))
    return [each for first in ids[::BLOCK] for each in ask([*ids[first : first + BLOCK]])]


def _load(model: bytes, name: str) -> tuple[Segmenter, tuple[str, ...]]:
    """Return a vocabulary and its pieces. Collections of garbage pass over a tuple of strings, and not over a list."""
    if model.startswith(b"{"):  # as no sentencepiece model does
        moses = MosesPieces(model, name, UNK)
        return moses, tuple(of_all_pieces(moses, moses.id_to_piece))
    import sentencepiece

    if not model:  # sentencepiece would read it as a model without pieces
        raise BundleError(f"{name}: not a sentencepiece model (it is empty)")
    try:
        loaded = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = tuple(of_all_pieces(loaded, loaded.id_to_piece))
    except UnicodeDecodeError:  # sentencepiece reads any bytes, and repeats them in its errors
        raise BundleError(f"{name}: not a sentencepiece model (a piece is not UTF-8)") from None
    except RuntimeError as error:
        raise BundleError(f"{name}: not a sentencepiece model ({error})") from None
    wanted = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}
    found = {"pad": loaded.pad_id(), "bos": loaded.bos_id(), "eos": loaded.eos_id(), "unk": loaded.unk_id()}
    if found != wanted:
        raise BundleError(f"{name}: its special ids must be {_listed(wanted)}, got {_listed(found)}")
    return loaded, pieces


def _listed(ids: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in ids.items())


# The quantifiers are possessive: with backtracking, a run of n full stops without a space takes n * n steps.
_SENTENCE_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”’»›)\]]*+(?= )|[。！？]++["'”’»›」』）)\]]*+""")
_CLAUSE_END = re.compile(r"[,;:–—] ")
_COMMA = re.compile(r"[、，；：]")
_OPENING = "\"'“„‚‘«‹([¿¡"
_ABBREVIATION = re.compile(
    "mr|mrs|ms|dr|prof|st|jr|sr|gen|col|sen|rep|rev|hon|hr|fr"
    "|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|okt|nov|dec|dez"
    "|no|nr|vs|etc|usw|e\\.g|i\\.e|cf|vgl|al|approx|ca|inc|ltd|co|corp|fig|abs|str|bzw|bsp|evtl|ggf|inkl|zzgl",
    re.IGNORECASE,
)


SURE = 4096  # characters of a sentence from which on a doubtful end is one: looking on in a megabyte takes long
LONGEST = 16_384  # characters of a sentence; it is cut between words: reading a megabyte at once takes 40 ms
CLAUSE_REACH = 2048  # characters from the middle in which a clause is looked for: reading a megabyte takes long


def split(text: str, fits: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Yield spans that fit and together cover the text, except the spaces between them.

    text: normalised, so white space is single spaces
    fits: true for a single character
    """
    for begin, end in sentences(text):
        yield from _halves(text, begin, end, fits)


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the sentences of a normalised text. In doubt, two stay one, up to SURE characters.

    A sentence of more than LONGEST characters is cut after a word, so that the time of each step has a bound.
    """
    begin = 0
    while begin < len(text):
        end = _sentence_end(text, begin)
        yield begin, end
        begin = end + (text[end : end + 1] == " ")


def _sentence_end(text: str, begin: int) -> int:
    """Return where the sentence at begin ends."""
    reach = begin + LONGEST
    for found in _SENTENCE_END.finditer(text, begin, reach):
        if found.end() < len(text) and (found.end() - begin > SURE or _ends(text, begin, found)):
            return found.end()
    if len(text) <= reach:
        return len(text)
    space = text.rfind(" ", begin, reach)
    if space <= begin:
        space = text.find(" ", reach)
    return len(text) if space < 0 else space


def _ends(text: str, begin: int, found: re.Match[str]) -> bool:
    """Return whether punctuation ends a sentence: no abbreviation, initial or ordinal before it, no lower case after
    it.
    """
    if text[found.end()] != " ":
        return True  # the script puts no space between sentences
    after = text[found.end() + 1 : found.end() + 4].lstrip(_OPENING)
    if after[:1].islower():
        return False
    if text[found.start()] != "." or found.group()[:2] == "..":
        return True
    word = text[max(begin, text.rfind(" ", begin, found.start()) + 1) : found.start()].lstrip(_OPENING)
    initial = len(word) == 1 and word.isalpha()
    ordinal = len(word) <= 2 and word.isdecimal()
    return not (initial or ordinal or _ABBREVIATION.fullmatch(word))


def _halves(text: str, begin: int, end: int, fits: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Halve a span between words until every piece fits: pieces of equal length translate better than a short rest."""
    if end - begin <= 1 or fits(text[begin:end]):
        yield begin, end
        return
    cut = _middle(text, begin, end)
    spaced = cut >= 0
    if not spaced:
        cut = _middle_of_word(text, begin, end)
    yield from _halves(text, begin, cut, fits)
    yield from _halves(text, cut + spaced, end, fits)


def _middle(text: str, begin: int, end: int) -> int:
    """Return the space to cut at: after a clause in the middle third, else nearest to the middle, or -1 without one."""
    middle, reach = (begin + end) // 2, min((end - begin) // 6, CLAUSE_REACH)
    clauses = [found.end() - 1 for found in _CLAUSE_END.finditer(text, middle - reach, middle + reach)]
    spaces = clauses or [
        position for position in (text.rfind(" ", begin, middle), text.find(" ", middle, end)) if position >= 0
    ]
    return min(spaces, key=lambda position: abs(position - middle), default=-1)


def _middle_of_word(text: str, begin: int, end: int) -> int:
    """Return where to cut a word, or a clause in a script without spaces: after a comma, else before a letter."""
    middle, reach = (begin + end) // 2, min((end - begin) // 6, CLAUSE_REACH)
    commas = [found.end() for found in _COMMA.finditer(text, middle - reach, middle + reach)]
    if commas:
        return min(commas, key=lambda position: abs(position - middle))
    letters = range(middle, min(end, middle + CLAUSE_REACH))
    return next((position for position in letters if not unicodedata.combining(text[position])), middle)
