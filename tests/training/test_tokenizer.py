"""Subword regularisation: segmentations are sampled as the unigram model says, and again the same after a resume."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor

from lingon.errors import SettingsError
from lingon.text import Tokenizer
from lingon.training.batches import EpochEncoder, encode_pairs
from lingon.training.config import TokenizerSettings
from lingon.training.corpus import Pair
from lingon.training.tokenizer import SegmentationSampler, train_tokenizer
from tests.support.repository import ROOT
from tests.support.tokenizers import train_sentencepiece

LINES = (ROOT / "lingon" / "errors.py").read_text(encoding="utf-8").split("\n\n")
TEXTS = [" ".join(line.split()) for line in LINES if line.strip()]


@pytest.fixture(scope="module")
def words() -> SentencePieceProcessor:
    pairs = [Pair(text, text) for text in TEXTS]
    return train_tokenizer(pairs, TokenizerSettings(vocab_size=500, character_coverage=1.0)).source


def test_the_same_seed_samples_the_same_segmentations(words: SentencePieceProcessor) -> None:
    lines = SegmentationSampler(words, TEXTS, 0.2)
    assert lines.sample((1, 2)) == lines.sample((1, 2)) == SegmentationSampler(words, TEXTS, 0.2).sample((1, 2))
    assert lines.sample((1, 2)) != lines.sample((1, 3))


def test_every_process_samples_the_same_segmentations(words: SentencePieceProcessor, tmp_path: Path) -> None:
    """The sampling of sentencepiece fails this test: it seeds its generator by itself in every process."""
    (tmp_path / "words").write_bytes(words.serialized_model_proto())
    program = (
        "import sys, sentencepiece; from lingon.training.tokenizer import SegmentationSampler;"
        "words = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1]);"
        "print(SegmentationSampler(words, sys.argv[2:], 0.2).sample((5,)))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "words"), *TEXTS]
    drawn = [subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    assert drawn == [f"{SegmentationSampler(words, TEXTS, 0.2).sample((5,))}\n"] * 2


def test_a_sampled_segmentation_decodes_to_the_text(words: SentencePieceProcessor) -> None:
    drawn = SegmentationSampler(words, TEXTS, 0.1).sample((1,))
    assert [words.decode(ids) for ids in drawn] == TEXTS
    assert drawn != words.encode(TEXTS)


def test_the_best_segmentation_of_a_line_is_that_of_its_words(words: SentencePieceProcessor) -> None:
    assert SegmentationSampler(words, TEXTS, 1000.0).sample((1,)) == words.encode(TEXTS)


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_segmentations_have_the_probabilities_of_the_unigram_model(words: SentencePieceProcessor, alpha: float) -> None:
    found = words.nbest_encode("message", nbest_size=64)
    scores = np.array([sum(map(words.get_score, ids)) for ids in found])
    expected = np.exp(alpha * (scores - scores.max()))
    expected /= expected.sum()
    drawn = Counter(map(tuple, SegmentationSampler(words, ["message"] * 20_000, alpha).sample((3,))))
    shares = [drawn[tuple(ids)] / 20_000 for ids in found]
    assert shares == pytest.approx(expected.tolist(), abs=0.012)
    assert sum(drawn.values()) == sum(drawn[tuple(ids)] for ids in found)


def test_every_epoch_samples_again_and_without_sampling_all_epochs_are_equal(
    pairs: list[Pair], tokenizer: Tokenizer
) -> None:
    sampled = EpochEncoder(pairs, tokenizer, 0.1)
    assert sampled.encode((1, 0)) != sampled.encode((1, 1))
    assert EpochEncoder(pairs, tokenizer).encode((1, 7)) == encode_pairs(pairs, tokenizer)


def test_no_sampled_line_exceeds_the_token_limit(words: SentencePieceProcessor) -> None:
    tokenizer = Tokenizer(words.serialized_model_proto())
    pairs = [Pair(text, text) for text in TEXTS]
    uncut = encode_pairs(pairs, tokenizer)
    most = int(uncut.lengths().max())
    free, bound = (EpochEncoder(pairs, tokenizer, 0.1, limit).encode((1, 0)) for limit in (10 * most, most))
    assert free.lengths().max() > most
    assert bound.lengths().max() <= most
    for drawn, kept, plain in zip(free.sources, bound.sources, uncut.sources, strict=True):
        assert kept == (drawn if len(drawn) < most else plain)


def test_a_bpe_tokenizer_is_rejected() -> None:
    tokenizer = train_tokenizer([Pair(text, text) for text in TEXTS], TokenizerSettings(kind="bpe", vocab_size=400))
    with pytest.raises(SettingsError, match=r"tokenizer\.sampling_alpha needs tokenizer\.kind = 'unigram'"):
        SegmentationSampler(tokenizer.source, TEXTS, 0.1)


def test_a_tokenizer_that_joins_words_without_blanks_is_refused() -> None:
    """Its words, cut one by one, would become one word: a model would learn texts that nobody writes."""
    trained = train_sentencepiece(TEXTS, 500, model_type="unigram", add_dummy_prefix=False)
    tokenizer = SentencePieceProcessor(model_proto=trained)
    with pytest.raises(SettingsError, match=r"^tokenizer.sampling_alpha must be 0: "):
        SegmentationSampler(tokenizer, TEXTS, 0.2)


def test_a_line_with_the_mark_of_a_space_is_never_cut_otherwise(words: SentencePieceProcessor) -> None:
    lines = ["one \u2581 two", "x\u2581", *TEXTS[:3]]
    drawn = SegmentationSampler(words, lines, 0.1).sample((1,))
    assert drawn[:2] == words.encode(lines[:2])
    assert [words.decode(ids) for ids in drawn[2:]] == TEXTS[:3]
