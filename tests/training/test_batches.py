"""Batches of pairs, and the distribution over source pieces that training makes of alignments."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import CorpusError
from lingon.text import BOS, EOS, PAD, Tokenizer
from lingon.training.batches import (
    EncodedPairs,
    EpochEncoder,
    PieceAlignments,
    derive_seed,
    drop_long,
    filter_by_length,
    plan_batches,
)
from lingon.training.config import Corpus, DataSettings, TokenizerSettings
from lingon.training.corpus import FilterCounts, Pair, TrainingText, read_linked_pairs, read_training_text
from lingon.training.tokenizer import train_tokenizer
from tests.support.tokenizers import train_sentencepiece

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80)


@given(lengths=LENGTHS, budget=st.integers(1, 200), seed=st.integers(0, 2**40))
def test_every_pair_is_in_one_batch_within_the_budget(lengths: list[tuple[int, int]], budget: int, seed: int) -> None:
    array = np.array(lengths)
    batches = plan_batches(array, budget, (seed, 3))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for rows in batches:
        assert len(rows) == 1 or len(rows) * array[rows].max() <= budget


def test_the_plan_is_a_function_of_the_seed_and_the_epoch() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, (200, 2))

    def plan(*seed: int) -> list[list[int]]:
        return [rows.tolist() for rows in plan_batches(lengths, 100, seed)]

    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(1, 1) != plan(2, 0)


def test_pairs_of_similar_length_are_batched_together() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, (2000, 2))
    padded = sum(len(rows) * lengths[rows, 1].max() for rows in plan_batches(lengths, 400, (1,)))
    assert padded < 1.1 * lengths[:, 1].sum()


def test_a_long_source_makes_only_its_own_batch_small() -> None:
    lengths = np.array([(40, 1), *[(5, 5)] * 100])
    assert len(plan_batches(lengths, 100, (1,))) <= 6


def test_a_batch_has_padded_pairs_with_begin_and_end_tokens() -> None:
    batch = EncodedPairs([[5, 6], [7]], [[8], [9, 10, 11]]).batch([0, 1])
    assert batch.source_ids.tolist() == [[5, 6, EOS], [7, EOS, PAD]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_ids.tolist() == [[BOS, 8, PAD, PAD], [BOS, 9, 10, 11]]
    assert batch.labels.tolist() == [[8, EOS, PAD, PAD], [9, 10, 11, EOS]]
    assert batch.tokens == 6


def test_a_source_without_an_end_token_is_its_pieces(tokenizer: Tokenizer) -> None:
    pairs = [Pair("1 2 3", "3 2 1"), Pair("4", "4")]
    framed = tokenizer.with_source_end(source_end=False)
    for alpha in (0.0, 0.1):
        encoded = EpochEncoder(pairs, framed, alpha).encode((1,))
        batch = encoded.batch([0, 1])
        assert batch.source_lengths.tolist() == [len(source) for source in encoded.sources]
        assert EOS not in batch.source_ids
        assert (batch.labels == EOS).sum() == 2
        assert batch.source_ids[0].tolist() == encoded.sources[0]


def test_different_numbers_give_different_seeds() -> None:
    seeds = {derive_seed(run, step, index) for run in range(3) for step in range(100) for index in range(3)}
    assert len(seeds) == 900
    assert max(seeds) < 2**32


def test_pairs_longer_than_max_tokens_on_a_side_are_filtered(tokenizer: Tokenizer) -> None:
    short, long = Pair("1 2", "2 1"), Pair("1 2 3 4 5 6", "6 5 4 3 2 1")
    length = len(tokenizer.encode_source(long.source))
    assert filter_by_length([short, long], tokenizer, length) == [short, long]
    assert filter_by_length([short, long], tokenizer, length - 1) == [short]


def test_long_pairs_are_dropped_and_counted_once_however_often_they_repeat(tokenizer: Tokenizer) -> None:
    text = TrainingText([[Pair("1", "1"), Pair("1 2 3 4 5 6", "6")]], [3], FilterCounts(2))
    kept = drop_long(text, tokenizer, 4)
    assert kept.epoch() == [Pair("1", "1")] * 3
    assert (kept.counts.kept, kept.counts.dropped["length"]) == (1, 1)
    with pytest.raises(CorpusError, match=r"no pair has at most data\.max_tokens = 1 tokens"):
        drop_long(text, tokenizer, 1)


WORDS = ["haus", "boot", "hausboot", "see"]


@pytest.fixture(scope="module")
def syllables() -> Tokenizer:
    """A tokenizer whose pieces are parts of words."""
    texts = [" ".join(WORDS[first:] + WORDS[:first]) for first in range(4)] * 20
    return train_tokenizer([Pair(text, text) for text in texts], TokenizerSettings(vocab_size=270))


def write_corpus(folder: Path, sources: list[str], targets: list[str], links: list[str]) -> Corpus:
    files = {"source": sources, "target": targets, "alignment": links}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return Corpus(**{name: folder / name for name in files})


def test_links_stay_with_their_pairs_through_every_filter(tmp_path: Path) -> None:
    """Dropped are an empty pair, one of unlike lengths, a duplicate with other links, and one that is too long."""
    sources = ["a b", "", "c d", "a b", "x" * 40, "e " * 30, "f g"]
    targets = ["b a", "x", "d c", "b a", "x", "e " * 30, "g f"]
    corpus = write_corpus(tmp_path, sources, targets, ["0-1", "", "1-0", "0-0", "0-0", "29-29", "0-1 1p0"])
    settings = DataSettings(
        source_language="en", target_language="de", train=(corpus,), valid=Corpus(file=tmp_path / "valid.tsv")
    )
    text = read_training_text(settings, linked=True)
    tokenizer = train_tokenizer(text.epoch() * 9, TokenizerSettings(vocab_size=275, character_coverage=1.0))
    kept = drop_long(text, tokenizer, 20)
    links = {"a b": ((0, 1),), "c d": ((1, 0),), "f g": ((0, 1), (1, 0))}
    assert {pair.source: pair.links for pair in kept.epoch()} == links
    assert kept.counts.dropped == {"empty": 1, "ratio": 1, "duplicate": 1, "length": 1}


def test_links_are_read_only_if_they_are_asked_for_and_are_part_of_the_digest(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, ["a b"], ["b a"], ["0-1"])
    settings = DataSettings(
        source_language="en", target_language="de", train=(corpus,), valid=Corpus(file=tmp_path / "valid.tsv")
    )
    plain, linked = read_training_text(settings), read_training_text(settings, linked=True)
    assert [pair.links for text in (plain, linked) for pair in text.epoch()] == [(), ((0, 1),)]
    assert plain.digest() != linked.digest()


def test_links_count_the_words_of_the_file_where_normalisation_removes_a_word(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, ["a \u200b  b"], ["b\u00a0a"], ["0-1 1-0 2-0"])
    assert list(read_linked_pairs(corpus)) == [Pair("a b", "b a", ((0, 1), (1, 0)))]


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (["0-0"], "alignment:2: ends here, but {folder}/source goes on"),
        (["0-0", "0-0", ""], "source:3: ends here, but {folder}/alignment goes on"),
        (["0-0", "0-0 1-2"], "alignment:2: link 1-2: the target has 2 words, counted from 0"),
        (["0-0", "0_0"], "alignment:2: a link must be i-j or ipj with i and j from 0 to 999999999, got '0_0'"),
    ],
)
def test_a_wrong_alignment_file_is_an_error_with_file_line_and_link(
    tmp_path: Path, links: list[str], message: str
) -> None:
    corpus = write_corpus(tmp_path, ["a b", "a b"], ["b a", "b a"], links)
    with pytest.raises(CorpusError) as error:
        list(read_linked_pairs(corpus))
    assert str(error.value) == f"{tmp_path}/{message.format(folder=tmp_path)}"


def test_all_pieces_of_linked_words_are_linked_with_equal_shares(syllables: Tokenizer) -> None:
    source, target = "see hausboot boot", "haus see"
    links = PieceAlignments([Pair(source, target, ((1, 0), (2, 0)))], syllables)
    pieces = [syllables.source.encode(text, out_type=str) for text in (source, target)]
    words = [["".join(each[: place + 1]).count("\u2581") - 1 for place in range(len(each))] for each in pieces]
    found = links.batch([0], [syllables.encode_source(source)], [syllables.encode_target(target)])[0]
    linked = [place for place, word in enumerate(words[0]) if word in (1, 2)]
    assert len(linked) > 2  # the compound has several pieces
    for place, row in enumerate(found.tolist()):
        to_first_word = place < len(words[1]) and words[1][place] == 0
        expected = [1 / len(linked) if to_first_word and each in linked else 0.0 for each in range(len(row))]
        assert row == pytest.approx(expected)


CHANGED = ["see a´ ´haus boot", "´ see", "haus \u200e boot", "ﷺ haus", "boot… ﷺ see", "haus´´ ´´ see \u200e\u200e boot"]
"""Texts whose words a tokenizer with nmt_nfkc splits, joins or removes."""


@pytest.fixture(scope="module")
def normalising() -> Tokenizer:
    """A tokenizer that normalises, as those of many published models."""
    lines = [f"{text} {word}" for text in CHANGED for word in WORDS] * 20
    options = {"normalization_rule_name": "nmt_nfkc", "character_coverage": 1.0, "hard_vocab_limit": False}
    return Tokenizer(train_sentencepiece(lines, 60, **options))


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_links_stay_with_their_words_where_the_tokenizer_normalises(normalising: Tokenizer, alpha: float) -> None:
    """Word by word, each text is its own translation."""
    pairs = [Pair(text, text, tuple((word, word) for word in range(len(text.split())))) for text in CHANGED]
    encoder, seen = EpochEncoder(pairs, normalising, alpha, linked=True), set()
    for epoch in range(4):
        encoded = encoder.encode((1, epoch))
        for row, text in enumerate(CHANGED):
            alignment = encoded.batch([row]).alignment
            assert alignment is not None
            sources, targets = (words_of(normalising, text, ids[row]) for ids in (encoded.sources, encoded.targets))
            found = [[j for j, share in enumerate(shares) if share] for shares in alignment[0].tolist()]
            assert found == [*([j for j, word in enumerate(sources) if word == each] for each in targets), []], text
            seen.add(tuple(encoded.sources[row]))
    assert (len(seen) > len(CHANGED)) == (alpha > 0)


def words_of(tokenizer: Tokenizer, text: str, ids: list[int]) -> list[int]:
    """Return the word of each piece: what a word becomes is known from that word alone."""
    written = [tokenizer.source.normalize(word) for word in text.split()]
    pieces = [tokenizer.source.id_to_piece(each) for each in ids]
    assert "".join(written) == "".join(pieces)
    ends = list(accumulate(map(len, written)))
    return [bisect_left(ends, end) for end in accumulate(map(len, pieces))]


def test_links_follow_the_segmentation_that_an_epoch_samples(syllables: Tokenizer) -> None:
    """Word by word, the text is its own translation."""
    texts = {"see haus boot": ((0, 0), (1, 1), (2, 2)), "boot see": ((0, 0), (1, 1))}
    pairs = [Pair(text, text, links) for text, links in texts.items()]
    encoder, shapes = EpochEncoder(pairs, syllables, 0.1, linked=True), set()
    for epoch in range(8):
        encoded = encoder.encode((1, epoch))
        batch = encoded.batch([1, 0])
        assert batch.alignment is not None
        shapes.add(batch.alignment.shape)
        for place, row in enumerate((1, 0)):
            for t, shares in enumerate(batch.alignment[place, : len(encoded.targets[row])]):
                heads = [syllables.source.id_to_piece(token)[0] for token in encoded.targets[row][: t + 1]]
                word = heads.count("\u2581") - 1
                marks = [syllables.source.id_to_piece(token)[0] for token in encoded.sources[row]]
                linked = [j for j in range(len(marks)) if marks[: j + 1].count("\u2581") - 1 == word]
                assert [j for j, share in enumerate(shares.tolist()) if share] == linked
                assert float(shares.sum()) == pytest.approx(1)
            assert not batch.alignment[place, len(encoded.targets[row]) :].any()
    assert len(shapes) > 1


def test_batches_of_a_run_without_guidance_have_no_alignment(syllables: Tokenizer) -> None:
    assert EpochEncoder([Pair("see", "see", ((0, 0),))], syllables).encode((1,)).batch([0]).alignment is None
