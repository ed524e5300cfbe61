"""Text of several pairs of languages: filters, token ids, shares of an epoch, and the tokenizer that it trains."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import SettingsError
from lingon.text import BOS, EOS, PAD, LanguageTokens, Tokenizer
from lingon.training.config import Corpus, DataSettings, LanguageSettings, TokenizerSettings
from lingon.training.data.batches import drop_long, encode_pairs, filter_by_length
from lingon.training.data.corpus import FilterCounts, Pair, TrainingText, read_training_text, read_validation_text
from lingon.training.data.temperature import epoch_rows, epoch_sizes
from lingon.training.data.tokenizer import train_tokenizer

EN_FR = ("en", "fr")
LANGUAGES = LanguageSettings.of([("en", "de"), EN_FR])


def settings(folder: Path, *languages: str | None) -> DataSettings:
    (folder / "text.tsv").write_text("okay\tokay\none\teins\n", encoding="utf-8")
    corpora = [Corpus(tsv=folder / "text.tsv", target_language=each) for each in languages]
    return DataSettings(source_language="en", target_language="de", train=tuple(corpora), valid=tuple(corpora))


def test_a_text_in_two_pairs_of_languages_is_no_duplicate(tmp_path: Path) -> None:
    assert read_training_text(settings(tmp_path, None, "de")).counts.dropped["duplicate"] == 2
    text = read_training_text(settings(tmp_path, None, "fr"))
    assert text.counts.kept == 4
    assert [pair.languages for pair in text.epoch()] == [None, None, EN_FR, EN_FR]
    assert read_validation_text(settings(tmp_path, None, "fr")) == text.epoch()


def test_the_digest_is_that_of_older_versions_for_one_pair_of_languages(tmp_path: Path) -> None:
    """The first digest is of the code before there were several pairs: a run that it began goes on as unchanged."""
    linked = [Pair("one", "eins"), Pair("two", "zwei", ((0, 0),))]
    text = TrainingText([linked, [Pair("three", "drei")]], [2, 1], FilterCounts(3))
    assert text.digest() == "4de12b14816338c1574008beabebe536cb2ef8c86fa2e5a0c8ad0c245b6de22f"
    digests = {read_training_text(settings(tmp_path, *each)).digest() for each in ((None,), ("de",), ("fr",))}
    assert len(digests) == 2


def test_a_batch_has_pairs_of_several_languages_each_with_its_own_tokens(tokenizer: Tokenizer) -> None:
    own = tokenizer.for_languages(LanguageTokens((11,), (), (12,)))
    others = {EN_FR: tokenizer.for_languages(LanguageTokens((21, 22), (23,), ()))}
    pairs = [Pair("1 2", "2 1"), Pair("1 2", "2 1", languages=EN_FR)]
    encoded = encode_pairs(pairs, own, others)
    source, target = tokenizer.source.encode("1 2"), tokenizer.target.encode("2 1")
    batch = encoded.batch([0, 1])
    assert batch.source_ids.tolist() == [[11, *source, EOS, PAD, PAD], [21, 22, *source, EOS, 23]]
    assert batch.source_lengths.tolist() == [len(source) + 2, len(source) + 4]
    assert batch.target_ids.tolist() == [[BOS, 12, *target], [BOS, *target, PAD]]
    assert encoded.lengths().tolist() == [[len(source) + 2, len(target) + 2], [len(source) + 4, len(target) + 1]]
    longest = len(source) + 3
    assert filter_by_length(pairs, own, longest, others) == pairs[:1]
    assert drop_long(TrainingText([pairs], [1], FilterCounts(2)), own, longest, others).epoch() == pairs[:1]


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5), temperature=st.floats(1, 100))
def test_an_epoch_has_every_pair_as_often_as_all_of_its_languages_or_once_more(
    sizes: list[int], temperature: float
) -> None:
    numbers = np.repeat(np.arange(len(sizes)), sizes)
    rows = epoch_rows(numbers, temperature, (3, 1))
    counted = Counter(rows.tolist())
    wanted = epoch_sizes(np.array(sizes), temperature)
    assert np.bincount(numbers[rows]).tolist() == wanted.tolist()
    assert wanted.max() == max(sizes)
    for number in range(len(sizes)):
        times = [counted[row] for row in np.flatnonzero(numbers == number).tolist()]
        assert max(times) - min(times) <= 1
        assert min(times) >= 1


def test_the_shares_of_an_epoch_are_the_sizes_to_the_power_of_one_over_the_temperature() -> None:
    """Arivazhagan et al. (2019), section 3.2: 1 leaves the sizes, a high temperature makes them equal."""
    sizes = np.array([10_000, 1_000, 10])
    assert epoch_sizes(sizes, 1).tolist() == sizes.tolist()
    assert epoch_sizes(sizes, 2).tolist() == [10_000, 3_162, 316]
    assert epoch_sizes(sizes, 1e9).tolist() == [10_000] * 3


def test_the_pairs_of_an_epoch_are_a_function_of_seed_and_epoch() -> None:
    numbers = np.repeat([0, 1], [100, 30])
    first, again, other = (epoch_rows(numbers, 4, seed).tolist() for seed in ((1, 0), (1, 0), (1, 1)))
    assert first == again != other
    assert epoch_rows(numbers, 1, (1, 0)).tolist() == list(range(130))


@pytest.mark.parametrize("joint", [True, False])
def test_the_pieces_of_languages_are_there_and_no_text_is_encoded_to_them(pairs: list[Pair], joint: bool) -> None:
    """A user who writes such a piece in a text must not choose the language by it."""
    forced = LANGUAGES.model_dump()
    forced["targets"][0]["forced"] = ["<2de>", "</s>"]
    languages = LanguageSettings.model_validate(forced)
    trained = train_tokenizer(pairs, TokenizerSettings(vocab_size=280, character_coverage=1, joint=joint), languages)
    codes = [trained.source.piece_to_id(piece) for piece in (">>de<<", ">>fr<<")]
    assert len(set(codes)) == 2
    assert min(codes) > 3
    assert trained.target.piece_to_id("<2de>") > 3
    assert trained.target.piece_to_id("</s>") == EOS
    assert not {*codes} & {*trained.encode_source("1 2 >>de<< 3 >>fr<<")}
    assert (trained.target.piece_to_id(">>de<<") > 3) == joint


def test_a_piece_that_every_tokenizer_has_is_refused(pairs: list[Pair]) -> None:
    sides = {"sources": [{"language": "en", "before": ["<0x41>"]}], "targets": [{"language": "de"}]}
    with pytest.raises(SettingsError, match=r"^languages: every tokenizer has a piece '<0x41>'; choose another$"):
        train_tokenizer(pairs, TokenizerSettings(vocab_size=290), LanguageSettings.model_validate(sides))


def test_a_piece_that_a_tokenizer_lacks_is_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(SettingsError, match=r"^languages: '>>de<<' is no piece of the source vocabulary$"):
        LANGUAGES.resolve(tokenizer)
