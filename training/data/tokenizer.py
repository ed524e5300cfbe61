"""Training of the sentencepiece tokenizer."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import sentencepiece

from lingon.errors import CorpusError, SettingsError
from lingon.text import BOS, EOS, PAD, UNK, Tokenizer
from lingon.training.config import Config, LanguageSettings, TokenizerSettings
from lingon.training.data.corpus import Pair, TrainingText, sides
from lingon.training.data.temperature import first_epoch

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

    languages: of a model of several; their pieces are control symbols, which no text is encoded to

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
