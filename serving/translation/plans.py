"""From a text to the jobs of an engine: check the length, normalise, tokenise, split long sentences. Pure.

A plan may also have a target prefix, or pieces of the vocabulary given by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from lingon.bundle.manifest import Limits, Manifest
from lingon.errors import InvalidRequest, TextTooLong
from lingon.segments.boundaries import Span, has_space
from lingon.segments.capitals import names_of
from lingon.segments.characters import Reading
from lingon.segments.kept_forms import ProtectedSpan
from lingon.segments.layout import TextLayout
from lingon.segments.markup import PlainText
from lingon.segments.memory_steps import EarlierPair
from lingon.segments.sentence import Custom
from lingon.segments.term_steps import SentenceTerms
from lingon.serving.translation.memories import PlannedMatch
from lingon.serving.translation.terms import PlannedTerm
from lingon.text import UNK, Tokenizer, common_length, normalise, of_all_pieces, printable, split

if TYPE_CHECKING:
    from lingon.text import Segmenter


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words of a model's languages for the text layer.

    words: words that the model translates to themselves, the surest first; they stand for kept strings
    names: words written with capitals, by their form in lower case
    """

    words: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


def lexicon(manifest: Manifest, tokenizer: Tokenizer) -> Lexicon:
    """Return the lexicon of a bundle."""
    scores = of_all_pieces(tokenizer.source, tokenizer.source.get_score)
    names = names_of(zip(tokenizer.source_table, scores, strict=True))
    return Lexicon(manifest.text.words if manifest.text is not None else (), names)


@dataclass(frozen=True, slots=True)
class Begin:
    """The text with which a translation begins, if the tokens of its target prefix spell another text.

    A vocabulary without byte pieces lacks characters, and some vocabularies have their own normalisation, such as NFKC.
    The model then reads tokens that stand for the prefix, and the translation begins with the text of the prefix.

    text: normalised text of the prefix
    tokens: tokens of the prefix; spelled: their text
    """

    text: str
    tokens: tuple[int, ...]
    spelled: str

    @classmethod
    def of(cls, text: str, tokens: tuple[int, ...], tokenizer: Tokenizer) -> Begin | None:
        """Return the begin of a translation with this prefix, or None if its tokens spell it."""
        if "".join(map(tokenizer.piece_text, tokens)).lstrip(" ") == text:  # saves a call of sentencepiece
            return None
        spelled = tokenizer.decode(tokens)
        return None if spelled.strip() == text else cls(text, tokens, spelled)

    def whole(self, tokens: Sequence[int], decoded: str, tokenizer: Tokenizer) -> str:
        """Return the text of tokens that begin with the tokens of the prefix; decoded: the text that they spell."""
        rest = decoded.removeprefix(self.spelled).rstrip()
        return self.text + self.space(tokens[len(self.tokens) :], tokenizer) + rest

    def space(self, following: Sequence[int], tokenizer: Tokenizer) -> str:
        """Return the space before the first token after the prefix if decoding drops it for lack of text before it."""
        begins_word = bool(following) and tokenizer.piece_text(following[0]).startswith(" ")
        return " " if begins_word and not self.spelled else ""

    def difference(self) -> tuple[int, str]:
        """Return the position and the text of the first character that the tokens do not spell."""
        index = min(common_length(self.text, self.spelled), len(self.text) - 1)
        return index, self.text[index]

    def refusal(self, field: str, why: str) -> InvalidRequest:
        """Return the error of a request that needs tokens that spell the prefix."""
        index, character = self.difference()
        message = f"{field} has {character!r} at character {index + 1}, which the model's tokens do not spell; {why}"
        return InvalidRequest(field, message)


def text_of(tokenizer: Tokenizer, tokens: Sequence[int], begin: Begin | None = None) -> str:
    """Return the text of generated tokens, which begin with the tokens of `begin` if there is one."""
    decoded = tokenizer.decode(tokens)
    return decoded.strip() if begin is None else begin.whole(tokens, decoded, tokenizer)


SHOWN = 40  # characters of a piece in an error


def source_of_pieces(text: str, field: str, tokenizer: Tokenizer, most: int) -> list[int]:
    """Return the source tokens of a text in pieces, with the end and language tokens, or none without pieces.

    most: tokens that the model reads; raises TextTooLong, and InvalidRequest for an invalid piece
    """
    pieces = text.split()
    if not pieces:
        return []
    if (tokens := len(pieces) + len(tokenizer.framed(()))) > most:
        message = (
            f"{field} has {tokens} tokens, the model reads {most} at most; a text in pieces is not split, shorten it"
        )
        raise TextTooLong(field, message)
    return tokenizer.framed(_ids(pieces, field, tokenizer.source, "source"))


def target_of_pieces(text: str, field: str, tokenizer: Tokenizer, most: int) -> tuple[int, ...]:
    """Return the tokens of a target prefix in pieces; most: bound of the tokens; errors: see `source_of_pieces`."""
    pieces = text.split()
    if len(pieces) > most:
        raise TextTooLong(field, f"{field} has {len(pieces)} tokens, at most {most} are allowed")
    return tuple(_ids(pieces, field, tokenizer.target, "target"))


def written(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Return target tokens as a text in pieces."""
    return " ".join(tokenizer.target_pieces(tokens))


def piece_spans(text: str) -> list[Span]:
    """Return the span of each piece of a text, without the blanks around it."""
    spans, end = list[Span](), 0
    for piece in text.split():
        begin = text.index(piece, end)
        end = begin + len(piece)
        spans.append((begin, end))
    return spans


def _ids(pieces: Sequence[str], field: str, vocabulary: Segmenter, side: str) -> list[int]:
    """Return the ids of pieces. `<unk>` is the unknown piece. Other pieces without text are refused."""
    unknown = str(vocabulary.id_to_piece(UNK))
    ids = list[int]()
    for index, piece in enumerate(pieces):
        token = int(vocabulary.piece_to_id(piece))
        if token < UNK or vocabulary.is_control(token) or (token == UNK and piece != unknown):
            shown = printable(piece if len(piece) <= SHOWN else f"{piece[:SHOWN]}…")
            kind = "is no piece" if token == UNK else "stands for no text, and cannot be used as a piece"
            message = f"{field}: {shown!r} at place {index} {kind} of the {side} vocabulary"
            raise InvalidRequest(field, f"{message}; {unknown} is an unknown piece" if token == UNK else message)
        ids.append(token)
    return ids


CHARACTERS_PER_TOKEN = 16  # characters of the longest piece that sentencepiece learns by default
SPARE_CHARACTERS = 256  # characters that every text may have in addition
SHORTEN = "shorten it"
SHORTEN_OR_SPLIT = "shorten it or set options.long_text to LONG_TEXT_POLICY_SPLIT"


@dataclass(frozen=True, slots=True)
class Steps:
    """The translation in steps of a sentence with kept strings, or in capitals: see `translate_sentence`.

    text: the sentence as it was sent; spans: its kept spans
    reading: the text that the model reads, if it differs or keeps more spans
    custom: how numbers are written in the translation; None keeps them
    """

    text: str
    spans: tuple[ProtectedSpan, ...]
    lexicon: Lexicon
    reading: Reading | None = None
    custom: Custom | None = None

    @property
    def read(self) -> Reading:
        """The sentence in the form that the model reads, with all kept spans."""
        return self.reading or Reading(self.text, self.spans)


@dataclass(frozen=True, slots=True)
class Part:
    """A span of a text that is decoded separately: a sentence, or a part of one that the model cannot read whole.

    begin: index of its first code point in the normalised text
    source_ids: framed by the tokenizer of the model
    sentence: index of its segment in the document
    steps: for a whole sentence that is not decoded unchanged; source_ids are then without its kept strings
    reading: the text that the model reads and the tokens spell, if it differs
    terms: those of its sentence that are translated in their own way
    given: its translation, if the model is not asked for it; source_ids are empty then
    earlier: of a part that is a sentence: what a memory has for a similar one, which guides the translation
    """

    text: str
    begin: int
    source_ids: tuple[int, ...]
    sentence: int = 0
    steps: Steps | None = None
    reading: Reading | None = None
    terms: SentenceTerms | None = None
    given: str | None = None
    earlier: EarlierPair | None = None

    @property
    def read_text(self) -> str:
        """The text that the model reads."""
        return self.text if self.reading is None else self.reading.text

    def of_sentence(self, sentence: int, begin: int, terms: SentenceTerms | None) -> Part:
        """Return this part of a sentence as a part of a text.

        begin: begin of the sentence in the normalised text; terms: of the sentence
        """
        return replace(self, begin=begin + self.begin, sentence=sentence, terms=terms)


@dataclass(frozen=True, slots=True)
class PairPlan:
    """A pair to score, normalised.

    source_ids: empty for an empty source, which the model does not read
    target_ids: without the begin and the end token
    in_pieces: whether it is written in pieces
    """

    source: str
    target: str
    source_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    in_pieces: bool = False


@dataclass(frozen=True, slots=True)
class TextPlan:
    """A text to translate.

    document: the text without markup, and its sentences
    parts: at least one for each sentence, in order; none if there is nothing to translate
    prefix: target tokens at the begin of the translation of the first part
    soft_prefix: target tokens with a higher probability at its begin
    begin: its text, if the tokens of the prefix spell another text
    plain: the plain text of a text with markup
    tagged: for each of its sentences, whether tags are placed in its translation
    terms: those that were found in its sentences, in their order
    matches: what translation memories have for its sentences, in their order
    """

    document: TextLayout
    parts: tuple[Part, ...]
    prefix: tuple[int, ...] = ()
    soft_prefix: tuple[int, ...] = ()
    begin: Begin | None = None
    plain: PlainText | None = None
    tagged: Sequence[bool] = ()
    terms: Sequence[PlannedTerm] = ()
    matches: Sequence[PlannedMatch] = ()

    def prefix_text(self, tokenizer: Tokenizer) -> str:
        """Return the normalised target prefix."""
        if not self.prefix:
            return ""
        return tokenizer.decode(self.prefix).strip() if self.begin is None else self.begin.text

    def parts_of_sentences(self) -> list[list[int]]:
        """Return the indices of the parts of each sentence."""
        found: list[list[int]] = [[] for _ in self.document.segments]
        for index, part in enumerate(self.parts):
            found[part.sentence].append(index)
        return found

    def is_tagged(self, part: Part) -> bool:
        """Return whether tags are placed in the translation of a part's sentence."""
        return bool(self.tagged) and self.tagged[part.sentence]

    @property
    def text(self) -> str:
        """The normalised text: its sentences and their separators, with one space for white space."""
        pieces, end, sentence = list[str](), 0, -1
        for part in self.parts:
            if part.sentence == sentence:
                before = " " * (part.begin - end)
            else:
                before = normalised_separator(self.document.separator(part.sentence), first=not pieces)
            pieces += [before, part.text]
            end, sentence = part.begin + len(part.text), part.sentence
        if pieces:
            pieces.append(normalised_separator(self.document.separator(sentence + 1)).rstrip())
        return "".join(pieces).translate(self.plain.stand_ins if self.plain else {})

    @property
    def source_tokens(self) -> int:
        """Source tokens of all parts, with end tokens if the model reads them."""
        return sum(len(part.source_ids) for part in self.parts)


def normalised_separator(separator: str, *, first: bool = False) -> str:
    """Return a separator of sentences, which may have figures or the mark of a list, with one space for white space.

    first: whether no sentence precedes it
    """
    text = normalise(separator)
    if not text:
        return "" if first or not has_space(separator) else " "
    before = " " if not first and separator[0].isspace() else ""
    return before + text + (" " if separator[-1].isspace() else "")


@cache
def most_characters(tokens: int) -> int:
    """Return an upper bound for the code points of a text of so many tokens.

    The length is checked first, because normalisation and tokenisation run on the event loop, and NFC takes quadratic
    time in the length of a run of combining marks: 16 000 of them take 70 ms, 128 000 take 19 s.
    """
    return tokens * CHARACTERS_PER_TOKEN + SPARE_CHARACTERS


def blocks(text: str, size: int) -> Iterator[str]:
    """Yield a text in blocks of at most `size` characters and a space, cut after white space, or in a longer word.

    The text is read block by block, because a search of all words of a megabyte would block the event loop.
    """
    begin = 0
    while len(text) - begin > size:
        window = text[begin : begin + size + 1]
        last = "" if window[-1].isspace() else window.rsplit(None, 1)[-1]
        end = begin + (len(window) - len(last) if len(last) <= size else size)
        yield text[begin:end]
        begin = end
    yield text[begin:]


def joined(normalised: Iterable[tuple[str, str]]) -> str:
    """Return a normalised text from its blocks, given as pairs of a block and its normalised form, in order."""
    found, spaced = list[str](), False
    for block, text in normalised:
        if text:
            found += [" " * (spaced or block[:1].isspace()) if found else "", text]
            spaced = False
        spaced = spaced or block[-1:].isspace()
    return "".join(found)


def check_size(
    text: str,
    field: str,
    limits: Limits,
    *,
    splits: bool,
    most: int,
    has: str = "has",
    advice: str = SHORTEN_OR_SPLIT,
) -> None:
    """Raise TextTooLong for a text with too many characters, before it is normalised.

    most: characters of a text that may be split
    has: the words after the field in the message, such as "has a sentence of"
    advice: what to do about a text that is too long
    """
    whole = most_characters(limits.max_source_tokens)
    if len(text) > whole and not splits:
        raise TextTooLong(
            field,
            f"{field} {has} {len(text)} characters; the model reads {limits.max_source_tokens} tokens at most, which "
            f"{whole} characters exceed; {advice}",
        )
    if splits and len(text) > most:
        raise TextTooLong(field, f"{field} has {len(text)} characters, more than the {most} that the server splits")


def parts_of(
    text: str,
    field: str,
    tokenizer: Tokenizer,
    limits: Limits,
    *,
    splits: bool,
    has: str = "has",
    advice: str = SHORTEN_OR_SPLIT,
) -> Iterator[Part]:
    """Yield the parts of a normalised text or sentence. A text that the model can read whole is one part.

    An empty text has none. Raises TextTooLong, which names the field; has, advice: see `check_size`.
    """
    if not text:
        return
    longest = most_characters(limits.max_source_tokens)
    if len(text) <= longest:
        ids = tokenizer.encode_source(text)
        if len(ids) <= limits.max_source_tokens:
            yield Part(text, 0, tuple(ids))
            return
        if not splits:
            raise TextTooLong(
                field,
                f"{field} {has} {len(ids)} tokens, the model reads {limits.max_source_tokens} at most; {advice}",
            )
    # NFC makes three characters of some.
    check_size(text, field, limits, splits=splits, most=len(text), has=has, advice=advice)

    def fits(part: str) -> bool:
        return len(part) <= longest and len(tokenizer.encode_source(part)) <= limits.max_source_tokens

    for begin, end in split(text, fits):
        yield Part(text[begin:end], begin, tuple(tokenizer.encode_source(text[begin:end])))


def as_sent(part: Part, sent: str, reading: Reading) -> Part:
    """Return a part of the model's reading as a part of the text that was sent.

    part: a part with its text and its begin in the reading; sent: the normalised text
    """
    end = part.begin + len(part.text)
    begin, last = reading.sent(part.begin, end)
    return replace(part, text=sent[begin:last], begin=begin, reading=reading.part(part.begin, end))


def target_ids(text: str, field: str, tokenizer: Tokenizer, most: int) -> tuple[int, ...]:
    """Return the tokens of a target text or prefix. Raises TextTooLong if there are more than `most`."""
    if len(text) > most_characters(most):
        raise TextTooLong(field, f"{field} has {len(text)} characters, more than {most} target tokens can hold")
    ids = tokenizer.encode_target(normalise(text))
    if len(ids) > most:
        raise TextTooLong(field, f"{field} has {len(ids)} tokens, at most {most} are allowed")
    return tuple(ids)


def plan_pair(source: str, target: str, field: str, tokenizer: Tokenizer, limits: Limits) -> PairPlan:
    """Return the tokens of a pair; field: name of the pair in errors."""
    check_size(source, f"{field}.source", limits, splits=False, most=0, advice=SHORTEN)
    source = normalise(source)
    parts = list(parts_of(source, f"{field}.source", tokenizer, limits, splits=False, advice=SHORTEN))
    ids = target_ids(target, f"{field}.target", tokenizer, limits.max_target_tokens - 1)
    return PairPlan(source, normalise(target), parts[0].source_ids if parts else (), ids)


def max_output(limits: Limits, plan: TextPlan, index: int, requested: int) -> int:
    """Return the bound on the target tokens of the part with this index, without the prefix.

    requested: the bound of the request; the bound of the model applies too
    """
    prefix = len(plan.prefix) if index == 0 else 0
    return min(requested, limits.max_output(len(plan.parts[index].source_ids)) - prefix)


def check_prefix(limits: Limits, plan: TextPlan, field: str) -> None:
    """Raise InvalidRequest for a prefix that is as long as the longest translation."""
    bound = limits.max_output(len(plan.parts[0].source_ids))
    if len(plan.prefix) >= bound:
        message = f"{field} has {len(plan.prefix)} tokens; the translation of this text has {bound} at most"
        raise InvalidRequest(field, message)
