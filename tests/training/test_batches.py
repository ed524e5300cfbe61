"""Batches of pairs, and the distribution over source pieces that training makes of alignments."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.errors import CorpusError
from lingon.text import BOS, EOS, PAD, Tokenizer, normalise
from lingon.training.batches import (
    Batch,
    BatchMaker,
    EncodedPairs,
    PieceAlignments,
    derive_seed,
    encode_pairs,
    filter_by_length,
)
from lingon.training.config import Config, TokenizerSettings
from lingon.training.corpus import Pair
from lingon.training.prepare import prepare
from lingon.training.tokenizer import train_tokenizer
from tests.support.corpora import (
    batch_of,
    epoch_pairs,
    ids_of,
    linked_corpus,
    maker_of,
    pairs_of,
    rows_of,
    text_config,
)
from tests.support.tokenizers import train_sentencepiece

GUIDED: dict[str, Any] = {"training": {"guided_alignment": 0.5}}


def test_a_batch_has_padded_pairs_with_begin_and_end_tokens() -> None:
    batch = EncodedPairs([[5, 6], [7]], [[8], [9, 10, 11]]).batch([0, 1])
    assert batch.source_ids.tolist() == [[5, 6, EOS], [7, EOS, PAD]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_ids.tolist() == [[BOS, 8, PAD, PAD], [BOS, 9, 10, 11]]
    assert batch.labels.tolist() == [[8, EOS, PAD, PAD], [9, 10, 11, EOS]]
    assert batch.tokens == 6


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_a_source_without_an_end_token_is_its_pieces(tokenizer: Tokenizer, tmp_path: Path, alpha: float) -> None:
    settings = {"sampling_alpha": alpha, "source_end": False}
    config = text_config(tmp_path, [("1 2 3", "3 2 1"), ("4", "4")], tokenizer=settings)
    batch = batch_of(maker_of(config, tmp_path / "corpus", tokenizer), [0, 1])
    assert EOS not in batch.source_ids
    assert (batch.labels == EOS).sum() == 2
    assert [tokenizer.source.decode(source) for source in ids_of(batch)[0]] == ["1 2 3", "4"]


@pytest.mark.parametrize("source_end", [True, False])
def test_batches_of_a_prepared_corpus_are_those_of_its_pairs_in_memory(
    tokenizer: Tokenizer, pairs: list[Pair], tmp_path: Path, source_end: bool
) -> None:
    texts = [(pair.source, pair.target) for pair in pairs]
    config = text_config(tmp_path, texts, tokenizer={"source_end": source_end})
    framed = tokenizer.with_source_end(source_end=source_end)
    maker, encoded = maker_of(config, tmp_path / "corpus", framed), encode_pairs(pairs, framed)
    for rows in ([0], [5, 3, 299, 3], [*range(100)]):
        found, expected = batch_of(maker, rows), encoded.batch(rows)
        assert all(map(np.array_equal, found[:4], expected[:4]))


def test_different_numbers_give_different_seeds() -> None:
    seeds = {derive_seed(run, step, index) for run in range(3) for step in range(100) for index in range(3)}
    assert len(seeds) == 900
    assert max(seeds) < 2**32


def test_pairs_longer_than_max_tokens_on_a_side_are_filtered(tokenizer: Tokenizer) -> None:
    short, long = Pair("1 2", "2 1"), Pair("1 2 3 4 5 6", "6 5 4 3 2 1")
    length = len(tokenizer.encode_source(long.source))
    assert filter_by_length([short, long], tokenizer, length) == [short, long]
    assert filter_by_length([short, long], tokenizer, length - 1) == [short]


def test_long_pairs_are_dropped_and_counted_once_however_often_they_repeat(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    long = ("1 2 3 4 5 6", "6")
    config = text_config(tmp_path, {"file": tmp_path / "text.tsv", "repeat": 3}, data={"max_tokens": 4})
    (tmp_path / "text.tsv").write_text("\t".join(("1", "1")) + "\n" + "\t".join(long) + "\n")
    corpus = prepare(config, tmp_path / "corpus", tokenizer)
    assert epoch_pairs(corpus, config) == [Pair("1", "1")] * 3
    assert (corpus.counts.kept, corpus.counts.dropped["length"]) == (1, 1)
    alone = text_config(tmp_path, [long], data={"max_tokens": 4})
    with pytest.raises(CorpusError, match=r"no pair has at most data\.max_tokens = 4 tokens"):
        prepare(alone, tmp_path / "other", tokenizer)


WORDS = ["haus", "boot", "hausboot", "see"]


@pytest.fixture(scope="module")
def syllables() -> Tokenizer:
    """A tokenizer whose pieces are parts of words."""
    texts = [" ".join(WORDS[first:] + WORDS[:first]) for first in range(4)] * 20
    return train_tokenizer([Pair(text, text) for text in texts], TokenizerSettings(vocab_size=270))


def guided(folder: Path, pairs: list[tuple[str, str]], links: list[str], **data: Any) -> Config:
    return text_config(folder, linked_corpus(folder, pairs, links), data=data, **GUIDED)


def test_links_stay_with_their_pairs_through_every_filter(tmp_path: Path) -> None:
    """Dropped are an empty pair, one of unlike lengths, a duplicate with other links, one that is held out, and one
    that is too long.
    """
    held_out, unlike, long = ("h i", "i h"), ("x" * 40, "x"), ("e " * 30, "e " * 30)
    pairs = [("a b", "b a"), ("", "x"), ("c d", "d c"), ("a b", "b a"), held_out, unlike, long, ("f g", "g f")]
    links = ["0-1", "", "1-0", "0-0", "0-0", "0-0", "29-29", "0-1 1p0"]
    (tmp_path / "test").write_text("i h\n")
    config = guided(tmp_path, pairs, links, max_tokens=20, held_out=[str(tmp_path / "test")])
    kept = [Pair("a b", "b a"), Pair("c d", "d c"), Pair("f g", "g f")]
    tokenizer = train_tokenizer(kept * 9, TokenizerSettings(vocab_size=270, character_coverage=1.0))
    corpus = prepare(config, tmp_path / "corpus", tokenizer)
    assert pairs_of(corpus) == [(pair.source, pair.target) for pair in kept]
    assert corpus.links(rows_of(corpus)) == [[(0, 1)], [(1, 0)], [(0, 1), (1, 0)]]
    assert corpus.counts.dropped == {"empty": 1, "ratio": 1, "duplicate": 1, "held out": 1, "length": 1}
    assert corpus.manifest.corpora[0].linked == 3


def test_links_are_read_only_if_they_are_asked_for_and_are_part_of_the_digest(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    linked = guided(tmp_path, [("a b", "b a")], ["0-1"])
    plain = linked.model_copy(update={"training": linked.training.model_copy(update={"guided_alignment": 0.0})})
    found = [prepare(config, tmp_path / str(place), tokenizer) for place, config in enumerate((plain, linked))]
    assert [corpus.links(rows_of(corpus)) for corpus in found] == [[[]], [[(0, 1)]]]
    assert found[0].digest([1]) != found[1].digest([1])


def test_links_count_the_words_of_the_file_where_normalisation_removes_a_word(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    corpus = prepare(guided(tmp_path, [("a \u200b  b", "b\u00a0a")], ["0-1 1-0 2-0"]), tmp_path / "corpus", tokenizer)
    assert pairs_of(corpus) == [("a b", "b a")]
    assert corpus.links(rows_of(corpus)) == [[(0, 1), (1, 0)]]


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
    tmp_path: Path, tokenizer: Tokenizer, links: list[str], message: str
) -> None:
    config = guided(tmp_path, [("a b", "b a")] * 2, links)
    with pytest.raises(CorpusError) as error:
        prepare(config, tmp_path / "corpus", tokenizer, rows=1)
    assert str(error.value) == f"{tmp_path}/{message.format(folder=tmp_path)}"


def test_all_pieces_of_linked_words_are_linked_with_equal_shares(syllables: Tokenizer) -> None:
    source, target = "see hausboot boot", "haus see"
    pieces = [syllables.source.encode(text, out_type=str) for text in (source, target)]
    words = [["".join(each[: place + 1]).count("\u2581") - 1 for place in range(len(each))] for each in pieces]
    ids = [syllables.encode_source(source)], [syllables.encode_target(target)]
    found = PieceAlignments(syllables).batch(([source], [target]), [((1, 0), (2, 0))], *ids)[0]
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


def own_translations(folder: Path, texts: list[str], tokenizer: Tokenizer, alpha: float) -> BatchMaker:
    """Return what makes batches of texts that are their own translations, linked word by word."""
    links = [" ".join(f"{word}-{word}" for word in range(len(text.split()))) for text in texts]
    corpus = linked_corpus(folder, [(text, text) for text in texts], links)
    return maker_of(
        text_config(folder, corpus, tokenizer={"sampling_alpha": alpha}, **GUIDED), folder / "corpus", tokenizer
    )


def aligned(batch: Batch) -> list[tuple[list[int], list[int], list[list[float]]]]:
    """Return the pieces of each source and target of a batch, and the shares of the sources in each target piece."""
    assert batch.alignment is not None
    found = zip(*ids_of(batch), batch.alignment.tolist(), strict=True)
    return [(source[:-1], target, shares) for source, target, shares in found]


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_links_stay_with_their_words_where_the_tokenizer_normalises(
    tmp_path: Path, normalising: Tokenizer, alpha: float
) -> None:
    written = [normalise(text) for text in CHANGED]
    maker, seen = own_translations(tmp_path, written, normalising, alpha), set()
    for epoch in range(4):
        for row, text in enumerate(written):
            ((source, target, shares),) = aligned(batch_of(maker, [row], epoch))
            sources, targets = (words_of(normalising, text, ids) for ids in (source, target))
            found = [[j for j, share in enumerate(line) if share] for line in shares]
            assert found == [*([j for j, word in enumerate(sources) if word == each] for each in targets), []], text
            seen.add(tuple(source))
    assert (len(seen) > len(CHANGED)) == (alpha > 0)


def words_of(tokenizer: Tokenizer, text: str, ids: list[int]) -> list[int]:
    """Return the word of each piece: what a word becomes is known from that word alone."""
    written = [tokenizer.source.normalize(word) for word in text.split()]
    pieces = [tokenizer.source.id_to_piece(each) for each in ids]
    assert "".join(written) == "".join(pieces)
    ends = list(accumulate(map(len, written)))
    return [bisect_left(ends, end) for end in accumulate(map(len, pieces))]


def test_links_follow_the_segmentation_that_an_epoch_samples(tmp_path: Path, syllables: Tokenizer) -> None:
    maker, shapes = own_translations(tmp_path, ["see haus boot", "boot see"], syllables, 0.1), set()
    for epoch in range(8):
        batch = batch_of(maker, [1, 0], epoch)
        assert batch.alignment is not None
        shapes.add(batch.alignment.shape)
        for source, target, rows in aligned(batch):
            marks, heads = ([syllables.source.id_to_piece(token)[0] for token in ids] for ids in (source, target))
            for t, shares in enumerate(rows[: len(target)]):
                word = heads[: t + 1].count("\u2581") - 1
                linked = [j for j in range(len(marks)) if marks[: j + 1].count("\u2581") - 1 == word]
                assert [j for j, share in enumerate(shares) if share] == linked
                assert sum(shares) == pytest.approx(1)
            assert not np.any(rows[len(target) :])
    assert len(shapes) > 1


def test_batches_of_a_run_without_guidance_have_no_alignment(tmp_path: Path, syllables: Tokenizer) -> None:
    config = text_config(tmp_path, linked_corpus(tmp_path, [("see", "see")], ["0-0"]))
    assert batch_of(maker_of(config, tmp_path / "corpus", syllables), [0]).alignment is None
