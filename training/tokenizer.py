"""The sentencepiece tokenizer: its training, and the segmentations that subword regularisation samples from it."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from lingon.errors import CorpusError, SettingsError
from lingon.text import BOS, EOS, PAD, UNK, Tokenizer
from lingon.training.config import Config, LanguageSettings, TokenizerSettings
from lingon.training.corpus import Pair, TrainingText, first_epoch, sides

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
"""The pieces that every model of sentencepiece has here."""


def tokenizer_of_run(text: TrainingText, config: Config) -> Tokenizer:
    """Train the tokenizer of a run on the pairs of its first epoch, with the pieces of its languages."""
    pairs = first_epoch(text.epoch(), config.data.temperature, config.training.seed)
    return train_tokenizer(pairs, config.tokenizer, config.languages)


def train_tokenizer(
    pairs: Sequence[Pair], settings: TokenizerSettings, languages: LanguageSettings | None = None
) -> Tokenizer:
    """Train a tokenizer on pairs: one model for both sides if settings.joint, else one for each.

    languages: of a model of several. Their pieces are control symbols, which no text is encoded to

    The unigram language model is that of Kudo (2018), the byte-pair encoding that of Sennrich et al. (2016).
    Raises SettingsError if vocab_size does not fit the text, or a piece of languages is one of bytes, such as <0x41>,
    and CorpusError if the text has no usable line.
    """
    sources, targets = sides(pairs)
    read, written = (languages.source_pieces, languages.target_pieces) if languages else ((), ())
    if settings.joint:
        return Tokenizer(_train(sources + targets, settings, [*read, *written]))
    return Tokenizer(_train(sources, settings, read), _train(targets, settings, written))


def _train(lines: Sequence[str], settings: TokenizerSettings, pieces: Sequence[str]) -> bytes:
    """Return the model that lines give; pieces: of languages."""
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
# words, and cheaper, because the segmentations of a word are computed once and sampled in every epoch.

SPACE = "\u2581"
NBEST = 64  # segmentations of a word to sample from; the paper takes as many of a sentence
CHECKED = 100  # lines whose words, cut one by one, are compared with the line


class SegmentationSampler:
    """A sampler of segmentations of lines of text.

    The probability of a segmentation of a word is P(segmentation) ** alpha, normalised over the NBEST best ones.
    """

    def __init__(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        lines: Sequence[str],
        alpha: float,
        max_tokens: int = sys.maxsize,
    ) -> None:
        """Compute the segmentations of every word.

        lines: normalised text
        alpha: 1 samples from the unigram model, a smaller value samples more evenly
        max_tokens: the most tokens of a line. A line with more sampled tokens gets its best segmentation instead
        """
        self._processor, self._lines, self._max_tokens = processor, lines, max_tokens
        index: dict[str, int] = {}
        self._words = [[index.setdefault(word, len(index)) for word in line.split(" ")] for line in lines]
        found = _segmentations(processor, list(index))
        for text, line in zip(lines[:CHECKED], self._words, strict=False):
            if SPACE in text:  # its words are not those of the tokenizer: see `sample`
                continue
            _check_joined(processor, text, [token for word in line for token in found[word][0]])
        self._segmentations = [ids for segmentations in found for ids in segmentations]
        self._cumulative = _cumulative(processor, found, alpha)

    def sample(self, seed: Sequence[int]) -> list[list[int]]:
        """Return the token ids of every line, a function of the seed."""
        words = np.array([word for line in self._words for word in line], np.int64)
        drawn = words + np.random.default_rng(list(seed)).random(len(words))
        chosen = np.searchsorted(self._cumulative, drawn, side="right").tolist()
        encoded, first = [], 0
        for text, line in zip(self._lines, self._words, strict=True):
            parts = chosen[first : first + len(line)]
            tokens = [token for part in parts for token in self._segmentations[part]]
            # The length filter saw the best segmentation. A sampled one may be twice as long.
            usable = len(tokens) <= self._max_tokens and SPACE not in text
            encoded.append(tokens if usable else list(self._processor.encode(text)))
            first += len(line)
        return encoded


def _segmentations(processor: sentencepiece.SentencePieceProcessor, words: list[str]) -> list[list[tuple[int, ...]]]:
    """Return the NBEST best segmentations of every word, the most probable first."""
    pieces = map(processor.id_to_piece, range(processor.get_piece_size()))
    if any(SPACE in piece[1:] for piece in pieces):
        problem = "this tokenizer has pieces that span words"
        raise SettingsError(f"tokenizer.sampling_alpha must be 0: {problem}; train another with `lingon tokenizer`")
    try:
        return [[tuple(ids) for ids in processor.nbest_encode(word, nbest_size=NBEST)] for word in words]
    except RuntimeError:
        raise SettingsError(
            "tokenizer.sampling_alpha needs tokenizer.kind = 'unigram'; bpe has no probabilities"
        ) from None


def _check_joined(processor: sentencepiece.SentencePieceProcessor, text: str, tokens: list[int]) -> None:
    """Raise SettingsError if the tokens of a text, word by word, are not the text; tokens: its best segmentation."""
    if processor.decode(tokens) != processor.decode(processor.encode(text)):
        raise SettingsError(
            "tokenizer.sampling_alpha must be 0: this tokenizer loses the blanks between words that it cuts one by one"
        )


def _cumulative(
    processor: sentencepiece.SentencePieceProcessor, found: list[list[tuple[int, ...]]], alpha: float
) -> NDArray[np.float64]:
    """Return one ascending table of cumulative probabilities: for segmentation k of word w, w + P(the first k).

    Searching the table for w + u, with u uniform in [0, 1), samples a segmentation of w.
    """
    scores = np.array([processor.get_score(token) for token in range(processor.get_piece_size())])
    parts: list[NDArray[np.float64]] = []
    for word, segmentations in enumerate(found):
        likelihood = alpha * np.array([scores[list(ids)].sum() for ids in segmentations])
        share = np.exp(likelihood - likelihood.max())
        cumulative = np.cumsum(share / share.sum())
        cumulative[-1] = 1.0
        parts.append(word + cumulative)
    return np.concatenate(parts)
