"""The vocabulary shortlist that an export learns, and its coverage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lingon.errors import CorpusError, SettingsError
from lingon.export.shortlist import ShortlistSettings, build_shortlist, measure_coverage
from lingon.files import read_parallel
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import EOS, FORBIDDEN, UNK, Tokenizer, normalise
from lingon.training.config import TokenizerSettings
from lingon.training.corpus import Pair
from lingon.training.tokenizer import train_tokenizer
from tests.support.repository import ROOT

DATA = ROOT / "tests" / "data"
SMALL = ShortlistSettings(per_piece=6, always=12)


@pytest.fixture(scope="module")
def sentences() -> list[Pair]:
    lines = read_parallel(DATA / "tatoeba.en", DATA / "tatoeba.de")
    return [Pair(normalise(source), normalise(target)) for source, target in lines]


@pytest.fixture(scope="module")
def tokenizer(sentences: list[Pair]) -> Tokenizer:
    return train_tokenizer(sentences, TokenizerSettings(vocab_size=700))


@pytest.fixture(scope="module")
def shortlist(sentences: list[Pair], tokenizer: Tokenizer) -> Shortlist:
    return build_shortlist(sentences, tokenizer, SMALL)


def same(one: Shortlist, other: Shortlist) -> bool:
    return one.to_bytes() == other.to_bytes()


def candidates(shortlist: Shortlist, piece: int) -> list[int]:
    return shortlist.pieces[shortlist.offsets[piece] : shortlist.offsets[piece + 1]].tolist()


def test_serving_reads_a_built_shortlist(shortlist, tokenizer):
    read = Shortlist.from_bytes(shortlist.to_bytes(), DATA, tokenizer.source_vocab, tokenizer.target_vocab)
    assert same(read, shortlist)


def test_every_set_has_the_end_token_and_no_other_special_piece(shortlist, tokenizer):
    for piece in range(tokenizer.source_vocab):
        chosen = shortlist.select([piece])
        assert EOS in chosen
        assert not np.isin(chosen, FORBIDDEN).any()


def test_pieces_of_both_vocabularies_may_be_copied(shortlist, tokenizer):
    for piece in range(UNK + 1, tokenizer.source_vocab):
        assert piece in shortlist.select([piece])


def test_with_two_vocabularies_a_piece_is_copied_by_its_text(sentences):
    tokenizer = train_tokenizer(sentences, TokenizerSettings(vocab_size=600, joint=False))
    built = build_shortlist(sentences, tokenizer, SMALL)
    known = {tokenizer.target.id_to_piece(piece): piece for piece in range(UNK + 1, tokenizer.target_vocab)}
    shared = 0
    for piece in range(UNK + 1, tokenizer.source_vocab):
        text = tokenizer.source.id_to_piece(piece)
        if text in known:
            shared += 1
            assert known[text] in built.select([piece])
    assert shared > 256
    assert UNK not in built.pieces


def test_the_unknown_piece_is_no_candidate(sentences):
    without_bytes = TokenizerSettings(vocab_size=300, byte_fallback=False, character_coverage=0.98)
    tokenizer = train_tokenizer(sentences, without_bytes)
    assert any(UNK in tokenizer.encode_target(pair.target) for pair in sentences)
    built = build_shortlist(sentences, tokenizer, SMALL)
    assert not np.isin(built.pieces, FORBIDDEN).any()
    assert not np.isin(built.always, FORBIDDEN).any()


def test_a_source_piece_has_at_most_per_piece_candidates_and_none_of_always(shortlist, tokenizer):
    for piece in range(tokenizer.source_vocab):
        brought = candidates(shortlist, piece)
        assert brought == sorted(set(brought))
        assert len(set(brought) - {piece}) <= SMALL.per_piece
        assert not np.isin(brought, shortlist.always).any()
    assert len(shortlist.always) == SMALL.always + 1


def test_the_most_frequent_target_pieces_are_in_every_set(shortlist, sentences, tokenizer):
    counts = np.bincount([piece for pair in sentences for piece in tokenizer.encode_target(pair.target)])
    others = np.delete(counts, shortlist.always[shortlist.always < len(counts)])
    assert counts[shortlist.always[shortlist.always != EOS]].min() >= others.max()


def test_more_candidates_cover_more_of_the_references(sentences, tokenizer):
    shares = []
    for per_piece in (1, 6, 36):
        built = build_shortlist(sentences, tokenizer, replace(SMALL, per_piece=per_piece))
        shares.append(measure_coverage(built, sentences, tokenizer).tokens)
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 0.95


def test_without_a_limit_every_reference_is_in_its_set(sentences, tokenizer):
    built = build_shortlist(sentences[:60], tokenizer, replace(SMALL, per_piece=tokenizer.target_vocab))
    found = measure_coverage(built, sentences[:60], tokenizer)
    assert found.tokens > 0.99


def test_text_beyond_max_pairs_is_sampled_evenly(sentences, tokenizer):
    thinned = build_shortlist(sentences, tokenizer, replace(SMALL, max_pairs=200))
    assert same(thinned, build_shortlist(sentences[::3], tokenizer, SMALL))


def test_building_twice_gives_the_same_bytes(shortlist, sentences, tokenizer):
    assert same(build_shortlist(sentences, tokenizer, SMALL), shortlist)


def test_coverage_counts_tokens_sentences_and_sizes(tokenizer):
    pairs = [Pair("Tom", "Tom"), Pair("Tom", "Maria")]
    ids = tokenizer.encode_target("Tom")
    none = np.zeros(tokenizer.source_vocab + 1, np.int32)
    built = Shortlist(np.union1d(ids, [EOS]).astype(np.int32), none, np.empty(0, np.int32))
    other = tokenizer.encode_target("Maria")
    found = measure_coverage(built, pairs, tokenizer)
    shared = sum(piece in ids for piece in other)
    assert found.tokens == (len(ids) + shared) / (len(ids) + len(other))
    assert found.sentences == 0.5
    assert found.mean_size == found.p95_size == found.largest == found.mean_union == len(built.always)
    assert found.batch_size == 2


def test_no_text_is_refused(shortlist, tokenizer):
    with pytest.raises(CorpusError, match="no pair"):
        build_shortlist([], tokenizer)
    with pytest.raises(CorpusError, match="no pair"):
        measure_coverage(shortlist, [], tokenizer)


@pytest.mark.parametrize("name", ["per_piece", "always", "max_pairs"])
def test_a_setting_out_of_bounds_is_named(name):
    with pytest.raises(SettingsError, match=f"{name} must be at least 1, got 0"):
        ShortlistSettings(**{name: 0})
