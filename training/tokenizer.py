"""The sentencepiece tokenizer: its training, and the segmentations that subword regularisation samples from it."""

from __future__ import annotations

import io
import re
import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from lingon.errors import CorpusError, SettingsError
from lingon.terms.annotation import AnnotationForm, unread_marker
from lingon.text import BOS, EOS, PAD, UNK, Tokenizer
from lingon.training.config import LanguageSettings, TokenizerSettings
from lingon.training.corpus import Pair, sides
from lingon.training.epochs import mixed

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
"""The pieces that every model of sentencepiece has here."""

SPACE = "\u2581"


def train_tokenizer(
    pairs: Sequence[Pair],
    settings: TokenizerSettings,
    languages: LanguageSettings | None = None,
    tags: Sequence[str] = (),
    markers: Sequence[str] = (),
) -> Tokenizer:
    """Train a tokenizer on pairs: one model for both sides if settings.joint, else one for each.

    languages: of a model of several. Their pieces are control symbols, which no text is encoded to
    tags: of corpora, likewise, of the source
    markers: of terms in the source. Each becomes one piece, with the blank before it

    The unigram language model is that of Kudo (2018), the byte-pair encoding that of Sennrich et al. (2016).
    Raises SettingsError if vocab_size does not fit the text, or a piece of languages is one of bytes, such as <0x41>,
    and CorpusError if the text has no usable line.
    """
    sources, targets = sides(pairs)
    read, written = (languages.source_pieces, languages.target_pieces) if languages else ((), ())
    read = (*read, *tags)
    if settings.joint:
        return Tokenizer(_train(sources + targets, settings, [*read, *written], markers))
    return Tokenizer(_train(sources, settings, read, markers), _train(targets, settings, written))


def check_markers(form: AnnotationForm, tokenizer: Tokenizer) -> None:
    """Raise SettingsError if a marker of terms is no piece, as in the vocabulary of a model without terms."""
    tokenizer.sentencepieces("data.terms")
    if (marker := unread_marker(form, tokenizer)) is not None:
        raise SettingsError(
            f"data.terms: {marker!r} is no piece of the source vocabulary; name markers that are, or begin a run that "
            "learns another"
        )


def _train(
    lines: Sequence[str], settings: TokenizerSettings, pieces: Sequence[str], markers: Sequence[str] = ()
) -> bytes:
    """Return the model that lines give; pieces: of languages; markers: of terms."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=settings.kind,
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            byte_fallback=settings.byte_fallback,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            control_symbols=[piece for piece in dict.fromkeys(pieces) if piece not in SPECIAL],
            user_defined_symbols=[SPACE + marker for marker in markers],
            normalization_rule_name="identity",  # only lingon.text.normalise changes text
            minloglevel=2,
        )
    except RuntimeError as error:
        # The message of sentencepiece begins with the position in its source code.
        reason = re.sub(r"^\w+: \S+\.cc\(\d+\) (\[.*\] (?=\S))?", "", str(error)).strip()
        if "ocabulary" in reason:
            bad = f"tokenizer.vocab_size = {settings.vocab_size}"
            if small := re.search(r"smaller than required_chars\. \d+ vs (\d+)", reason):
                reason = (
                    f"its characters and the special pieces alone need {int(small[1]):,}; raise vocab_size, or lower "
                    "tokenizer.character_coverage"
                )
            raise SettingsError(f"{bad} does not fit this text: {reason}") from None
        if taken := re.search(r"(\S+) is already defined", reason):
            raise SettingsError(f"languages: every tokenizer has a piece {taken[1]!r}; choose another") from None
        if "sentences_.empty()" in reason:
            reason = "no line has from 1 to 4,192 bytes"  # sentencepiece skips longer lines
        raise CorpusError(f"no tokenizer can be trained on this text: {reason}") from None
    return model.getvalue()


# Subword regularisation (Kudo, 2018): every epoch samples the segmentation of the text from the unigram model.
# sentencepiece can sample too, but it seeds its generator by itself in every process, so two processes, or a run and
# its resumption, would sample differently. This module samples word by word. That is exact, because no piece spans two
# words, and cheaper, because the segmentations of frequent words are computed once.

NBEST = 64  # segmentations of a word to sample from; the paper takes as many of a sentence
WORDS = 2**16  # whose segmentations are kept, about 2 KB each
CHECKED = 100  # lines whose words, cut one by one, are compared with the line
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the step of SplitMix64


class _Segmentations(NamedTuple):
    """The segmentations of a word, the best first.

    ids: of all of them, one after the other, as int32
    bounds: where each begins in ids and where the last one ends, in bytes
    cumulative: the sum of the probabilities up to each one, without that of the last, which is 1
    """

    ids: bytes
    bounds: array[int]
    cumulative: array[float]

    @property
    def best(self) -> bytes:
        """The ids of the best one."""
        return self.ids[: self.bounds[1]]

    def draw(self, chance: float) -> bytes:
        """Return the ids of the one that a number in [0, 1) draws."""
        number = bisect_right(self.cumulative, chance)
        return self.ids[self.bounds[number] : self.bounds[number + 1]]


class SegmentationSampler:
    """A sampler of segmentations of lines of text.

    The probability of a segmentation of a word is P(segmentation) ** alpha, normalised over the NBEST best ones.
    """

    def __init__(
        self, processor: sentencepiece.SentencePieceProcessor, alpha: float, max_tokens: int = sys.maxsize
    ) -> None:
        """Raise SettingsError if the tokenizer cannot sample.

        alpha: 1 samples from the unigram model, a smaller value samples more evenly
        max_tokens: the most tokens of a line. A line with more sampled tokens gets its best segmentation instead
        """
        pieces = map(processor.id_to_piece, range(processor.get_piece_size()))
        if any(SPACE in piece[1:] for piece in pieces):
            problem = "this tokenizer has pieces that span words"
            raise SettingsError(f"tokenizer.sampling_alpha must be 0: {problem}; let the run learn another")
        self._processor, self._alpha, self._max_tokens = processor, alpha, max_tokens
        self._scores = np.array([processor.get_score(token) for token in range(processor.get_piece_size())])
        self._segmentations = lru_cache(WORDS)(self._compute)

    def check(self, lines: Sequence[str]) -> None:
        """Raise SettingsError if the words of lines, cut one by one, are not the lines."""
        for text in lines[:CHECKED]:
            if SPACE in text:  # its words are not those of the tokenizer: see `sample`
                continue
            best = b"".join(self._segmentations(word).best for word in text.split(" "))
            tokens = np.frombuffer(best, np.int32).tolist()
            if self._processor.decode(tokens) != self._processor.decode(self._processor.encode(text)):
                raise SettingsError(
                    "tokenizer.sampling_alpha must be 0: this tokenizer loses the blanks between words that it cuts "
                    "one by one"
                )

    def sample(self, lines: Sequence[str], keys: NDArray[np.uint64]) -> list[NDArray[np.int32]]:
        """Return the token ids of every line, a function of its text and its key; keys: (lines)."""
        words = [line.split(" ") for line in lines]
        counts = np.array([len(line) for line in words])
        first = np.cumsum(counts) - counts
        steps = np.arange(counts.sum(), dtype=np.uint64) - np.repeat(first, counts).astype(np.uint64)
        numbers = (np.repeat(keys, counts) + steps * _GOLDEN).astype(np.uint64)
        drawn = (mixed(numbers) >> np.uint64(11)) * 2.0**-53  # uniform in [0, 1)
        found, at = [], 0
        for text, line in zip(lines, words, strict=True):
            parts = []
            for word, chance in zip(line, drawn[at : at + len(line)].tolist(), strict=True):
                parts.append(self._segmentations(word).draw(chance))
            at += len(line)
            tokens = np.frombuffer(b"".join(parts), np.int32)
            # The length filter saw the best segmentation. A sampled one may be twice as long.
            if len(tokens) > self._max_tokens or SPACE in text:
                tokens = np.array(self._processor.encode(text), np.int32)
            found.append(tokens)
        return found

    def _compute(self, word: str) -> _Segmentations:
        try:
            found = self._processor.nbest_encode(word, nbest_size=NBEST)
        except RuntimeError:
            raise SettingsError(
                "tokenizer.sampling_alpha needs tokenizer.kind = 'unigram'; bpe has no probabilities"
            ) from None
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        ids, ends = np.fromiter(chain.from_iterable(found), np.int32, lengths.sum()), lengths.cumsum()
        cumulative = np.empty(0)
        if len(found) > 1:
            likelihood = self._alpha * np.add.reduceat(self._scores[ids], ends - lengths)
            share = np.exp(likelihood - likelihood.max())
            cumulative = np.cumsum(share / share.sum())[:-1]
        return _Segmentations(ids.tobytes(), array("i", [0, *(ids.itemsize * ends).tolist()]), array("d", cumulative))
