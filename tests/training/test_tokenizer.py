"""Subword regularisation: segmentations are sampled as the unigram model says, and again the same after a resume."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from lingon.errors import SettingsError
from lingon.text import Tokenizer
from lingon.training.config import TokenizerSettings
from lingon.training.corpus import Pair
from lingon.training.tokenizer import SegmentationSampler, train_tokenizer
from tests.support.corpora import batch_of, ids_of, maker_of, text_config
from tests.support.repository import ROOT
from tests.support.tokenizers import train_sentencepiece

LINES = (ROOT / "lingon" / "errors.py").read_text(encoding="utf-8").split("\n\n")
TEXTS = [" ".join(line.split()) for line in LINES if line.strip()]


@pytest.fixture(scope="module")
def words() -> SentencePieceProcessor:
    pairs = [Pair(text, text) for text in TEXTS]
    return train_tokenizer(pairs, TokenizerSettings(vocab_size=500, character_coverage=1.0)).source


def keys(count: int, seed: int = 1) -> NDArray[np.uint64]:
    """Return keys of lines."""
    return np.random.default_rng(seed).integers(2**64, size=count, dtype=np.uint64)


def sampled(words: SentencePieceProcessor, alpha: float, seed: int = 1, lines: list[str] = TEXTS) -> list[list[int]]:
    """Return segmentations of lines."""
    return [ids.tolist() for ids in SegmentationSampler(words, alpha).sample(lines, keys(len(lines), seed))]


def test_the_same_keys_sample_the_same_segmentations(words: SentencePieceProcessor) -> None:
    assert sampled(words, 0.2) == sampled(words, 0.2)
    assert sampled(words, 0.2) != sampled(words, 0.2, seed=2)


def test_the_segmentation_of_a_line_depends_on_its_own_text_and_key_alone(words: SentencePieceProcessor) -> None:
    """So it does not matter which batch a pair is in, and what a process has sampled before."""
    sampler, of_lines = SegmentationSampler(words, 0.2), keys(len(TEXTS))
    together = sampler.sample(TEXTS, of_lines)
    for place in reversed(range(len(TEXTS))):
        (alone,) = sampler.sample([TEXTS[place]], of_lines[place : place + 1])
        assert alone.tolist() == together[place].tolist()


def test_every_process_samples_the_same_segmentations(words: SentencePieceProcessor, tmp_path: Path) -> None:
    """The sampling of sentencepiece fails this test: it seeds its generator by itself in every process."""
    (tmp_path / "words").write_bytes(words.serialized_model_proto())
    program = (
        "import sys, numpy, sentencepiece; from lingon.training.tokenizer import SegmentationSampler;"
        "words = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1]);"
        "keys = numpy.arange(len(sys.argv) - 2, dtype=numpy.uint64);"
        "print([each.tolist() for each in SegmentationSampler(words, 0.2).sample(sys.argv[2:], keys)])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "words"), *TEXTS]
    drawn = [subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    here = SegmentationSampler(words, 0.2).sample(TEXTS, np.arange(len(TEXTS), dtype=np.uint64))
    assert drawn == [f"{[each.tolist() for each in here]}\n"] * 2


def test_a_sampled_segmentation_decodes_to_the_text(words: SentencePieceProcessor) -> None:
    drawn = sampled(words, 0.1)
    assert [words.decode(ids) for ids in drawn] == TEXTS
    assert drawn != words.encode(TEXTS)


def test_the_best_segmentation_of_a_line_is_that_of_its_words(words: SentencePieceProcessor) -> None:
    assert sampled(words, 1000.0) == words.encode(TEXTS)


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_segmentations_have_the_probabilities_of_the_unigram_model(words: SentencePieceProcessor, alpha: float) -> None:
    found = words.nbest_encode("message", nbest_size=64)
    scores = np.array([sum(map(words.get_score, ids)) for ids in found])
    expected = np.exp(alpha * (scores - scores.max()))
    expected /= expected.sum()
    drawn = Counter(map(tuple, sampled(words, alpha, 3, ["message"] * 20_000)))
    shares = [drawn[tuple(ids)] / 20_000 for ids in found]
    assert shares == pytest.approx(expected.tolist(), abs=0.012)
    assert sum(drawn.values()) == sum(drawn[tuple(ids)] for ids in found)


def test_the_words_of_a_line_are_sampled_independently(words: SentencePieceProcessor) -> None:
    """Both words of a line have the shares of one word, and each pair of segmentations the product of theirs."""
    lines = ["message message"] * 20_000
    halves = Counter[tuple[tuple[int, ...], tuple[int, ...]]]()
    for ids in sampled(words, 0.1, 5, lines):
        second = max(place for place, token in enumerate(ids) if words.id_to_piece(token).startswith("\u2581"))
        halves[tuple(ids[:second]), tuple(ids[second:])] += 1
    left, right = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for (one, other), count in halves.items():
        left[one] += count
        right[other] += count
    assert len(left) > 3
    for one, other in halves:
        product = left[one] * right[other] / len(lines) ** 2
        assert halves[one, other] / len(lines) == pytest.approx(product, abs=0.012)


def test_every_epoch_samples_again_and_without_sampling_all_epochs_are_equal(
    pairs: list[Pair], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    rows = [*range(100)]
    for alpha in (0.1, 0.0):
        config = text_config(
            tmp_path, [(pair.source, pair.target) for pair in pairs], tokenizer={"sampling_alpha": alpha}
        )
        maker = maker_of(config, tmp_path / "corpus", tokenizer)
        first, again, other = (ids_of(batch_of(maker, rows, epoch)) for epoch in (0, 0, 1))
        assert first == again
        assert (first != other) == (alpha > 0)


def test_no_sampled_line_exceeds_the_token_limit(words: SentencePieceProcessor) -> None:
    uncut = words.encode(TEXTS)
    most = max(map(len, uncut))
    of_lines = keys(len(TEXTS))
    free, bound = (
        [ids.tolist() for ids in SegmentationSampler(words, 0.1, limit).sample(TEXTS, of_lines)]
        for limit in (10 * most, most)
    )
    assert max(map(len, free)) > most
    assert max(map(len, bound)) <= most
    for drawn, kept, plain in zip(free, bound, uncut, strict=True):
        assert kept == (drawn if len(drawn) <= most else plain)


def test_no_batch_of_sampled_segmentations_exceeds_its_tokens(tmp_path: Path) -> None:
    """A pair whose sampled segmentation would make the batch too large has its best one."""
    tokenizer = train_tokenizer([Pair(text, text) for text in TEXTS], TokenizerSettings(vocab_size=500))
    texts = [text for text in dict.fromkeys(TEXTS) if len(text) < 2000]  # a corpus has no equal and no long ones
    best = tokenizer.source.encode(texts)
    rows = sorted(range(len(texts)), key=lambda row: len(best[row]))[: len(texts) // 2]
    limits = {"batch_tokens": 4 * (len(best[rows[-1]]) + 1)}
    sampling = {"sampling_alpha": 0.1}
    config = text_config(
        tmp_path, [(text, text) for text in texts], tokenizer=sampling, training=limits, data={"max_tokens": 2000}
    )
    maker, cut, other = maker_of(config, tmp_path / "corpus", tokenizer), 0, 0
    for epoch in range(20):
        for first in range(0, len(rows) - 3, 4):
            batch = batch_of(maker, rows[first : first + 4], epoch)
            assert max(batch.source_ids.numel(), batch.labels.numel()) <= limits["batch_tokens"]
            for row, target in zip(rows[first : first + 4], ids_of(batch)[1], strict=True):
                cut += target == best[row]
                other += target != best[row]
    assert min(cut, other) > 0


def test_a_bpe_tokenizer_is_rejected() -> None:
    tokenizer = train_tokenizer([Pair(text, text) for text in TEXTS], TokenizerSettings(kind="bpe", vocab_size=400))
    with pytest.raises(SettingsError, match=r"tokenizer\.sampling_alpha needs tokenizer\.kind = 'unigram'"):
        SegmentationSampler(tokenizer.source, 0.1).check(TEXTS)


def test_a_tokenizer_that_joins_words_without_blanks_is_refused() -> None:
    """Its words, cut one by one, would become one word: a model would learn texts that nobody writes."""
    trained = train_sentencepiece(TEXTS, 500, model_type="unigram", add_dummy_prefix=False)
    tokenizer = SentencePieceProcessor(model_proto=trained)
    with pytest.raises(SettingsError, match=r"^tokenizer.sampling_alpha must be 0: "):
        SegmentationSampler(tokenizer, 0.2).check(TEXTS)


def test_a_line_with_the_mark_of_a_space_is_never_cut_otherwise(words: SentencePieceProcessor) -> None:
    lines = ["one \u2581 two", "x\u2581", *TEXTS[:3]]
    drawn = sampled(words, 0.1, lines=lines)
    assert drawn[:2] == words.encode(lines[:2])
    assert [words.decode(ids) for ids in drawn[2:]] == TEXTS[:3]
