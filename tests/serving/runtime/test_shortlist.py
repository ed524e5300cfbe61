"""Shortlist files, sets of sentences and their unions."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.errors import BundleError
from lingon.serving.runtime.shortlist import COLUMN_MULTIPLE, Shortlist, ShortlistUnion, unite
from lingon.text import BOS, EOS, PAD, UNK

ORIGIN = Path("models/random/1/shortlist.npz")
SOURCE_VOCAB, TARGET_VOCAB = 30, 400


def random_shortlist(seed: int = 0) -> Shortlist:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 9, SOURCE_VOCAB)
    sets = [np.sort(random.choice(np.arange(4, TARGET_VOCAB), size, replace=False)) for size in sizes]
    always = np.union1d(random.integers(4, TARGET_VOCAB, 6), [EOS])
    offsets = np.append(0, np.cumsum(sizes))
    return Shortlist(*(array.astype(np.int32) for array in (always, offsets, np.concatenate(sets))))


def packed(**changes: Any) -> bytes:
    """The content of a shortlist's file with some arrays replaced, or left out if None."""
    valid = random_shortlist()
    arrays = {"always": valid.always, "offsets": valid.offsets, "pieces": valid.pieces, **changes}
    content = io.BytesIO()
    np.savez(content, **{name: array for name, array in arrays.items() if array is not None})
    return content.getvalue()


def swapped(array: np.ndarray, one: int, other: int) -> np.ndarray:
    changed = array.copy()
    changed[[one, other]] = array[[other, one]]
    assert not np.array_equal(changed, array)
    return changed


def read(content: bytes) -> Shortlist:
    return Shortlist.from_bytes(content, ORIGIN, SOURCE_VOCAB, TARGET_VOCAB)


def random_sets(count: int, seed: int = 0) -> list[np.ndarray]:
    random, shortlist = np.random.default_rng(seed), random_shortlist()
    return [shortlist.select(random.integers(4, SOURCE_VOCAB, random.integers(1, 12)).tolist()) for _ in range(count)]


def test_the_set_of_a_sentence_is_always_and_the_candidates_of_its_pieces():
    shortlist = random_shortlist()
    for source in ([5, 9, 5, 28, EOS], [SOURCE_VOCAB - 1], [EOS], []):
        candidates = [shortlist.pieces[shortlist.offsets[piece] : shortlist.offsets[piece + 1]] for piece in source]
        chosen = shortlist.select(source)
        assert chosen.tolist() == sorted(set(np.concatenate([shortlist.always, *candidates]).tolist()))
        assert chosen.dtype == np.int64
        assert set(shortlist.collect(source).tolist()) == set(chosen.tolist())


def test_a_shortlist_is_read_as_it_was_written():
    written, found = random_shortlist(), read(random_shortlist().to_bytes())
    for name in ("always", "offsets", "pieces"):
        assert np.array_equal(getattr(found, name), getattr(written, name))


def test_the_same_arrays_always_give_the_same_bytes():
    assert random_shortlist().to_bytes() == random_shortlist().to_bytes() == read(packed()).to_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"always": None}, "must hold the arrays"),
        ({"more": np.zeros(1, np.int32)}, "must hold the arrays"),
        ({"pieces": np.array([object()])}, "not a readable shortlist"),
        ({"always": random_shortlist().always.astype(np.int64)}, "always must be int32"),
        ({"pieces": random_shortlist().pieces[None]}, "pieces must be int32 in one dimension"),
        ({"offsets": random_shortlist().offsets[:-1]}, "31 long for 30"),
        ({"offsets": np.maximum(random_shortlist().offsets, 1)}, "rise from 0"),
        ({"offsets": swapped(random_shortlist().offsets, 3, 12)}, "rise from 0"),
        ({"pieces": random_shortlist().pieces[:-1]}, "rise from 0"),
        ({"always": np.array([7, 8], np.int32)}, "hold the end token"),
        ({"always": np.array([EOS, 9, 8], np.int32)}, "always must rise"),
        ({"always": np.array([EOS, TARGET_VOCAB], np.int32)}, "always holds 400"),
        ({"pieces": random_shortlist().pieces * np.int32(-1)}, "pieces holds -"),
        *(({"pieces": np.full_like(random_shortlist().pieces, piece)}, f"holds {piece}") for piece in (PAD, BOS, UNK)),
    ],
)
def test_an_error_names_the_file_and_the_array_that_is_invalid(changes, message):
    with pytest.raises(BundleError, match=message) as raised:
        read(packed(**changes))
    assert str(raised.value).startswith(f"{ORIGIN}: ")


def test_a_file_with_a_damaged_byte_is_refused_or_means_the_same():
    content, wanted, random = random_shortlist().to_bytes(), random_shortlist().to_bytes(), np.random.default_rng(0)
    for place in random.integers(0, len(content), 300).tolist():
        damaged = bytearray(content)
        damaged[place] ^= int(random.integers(1, 256))
        try:
            assert read(bytes(damaged)).to_bytes() == wanted
        except BundleError:
            continue


@pytest.mark.parametrize("content", [b"", b"nonsense", random_shortlist().to_bytes()[:200], b"\x93NUMPY\x01\x00"])
def test_an_unreadable_file_is_refused_by_name(content):
    with pytest.raises(BundleError, match=f"{ORIGIN}: not a readable shortlist"):
        read(content)


def union_of(sets: list[np.ndarray]) -> ShortlistUnion:
    permitted = np.zeros((len(sets), TARGET_VOCAB), np.bool_)
    for row, pieces in zip(permitted, sets, strict=True):
        row[pieces] = True
    return unite(permitted)


@pytest.mark.parametrize("count", [1, 2, 33])
def test_in_a_union_every_sentence_may_use_only_its_own_set(count):
    sets = random_sets(count)
    union = union_of(sets)
    assert union.allowed.shape == (count, len(union.piece_ids))
    for pieces, allowed in zip(sets, union.allowed, strict=True):
        assert union.piece_ids[allowed].tolist() == pieces.tolist()


def test_a_union_is_padded_with_the_end_token_which_no_sentence_may_use_there():
    for count in (1, 5, 40):
        union = union_of(random_sets(count))
        real = len(np.unique(np.concatenate(random_sets(count))))
        assert len(union.piece_ids) == -(-real // COLUMN_MULTIPLE) * COLUMN_MULTIPLE
        assert (np.diff(union.piece_ids[:real]) > 0).all()
        assert (union.piece_ids[real:] == EOS).all()
        assert not union.allowed[:, real:].any()


def test_a_union_that_fits_its_columns_is_not_padded():
    union = union_of([np.append(EOS, np.arange(10, 10 + COLUMN_MULTIPLE - 1))])
    assert len(union.piece_ids) == COLUMN_MULTIPLE
    assert union.allowed.all()


def test_a_free_slot_may_use_no_piece_and_changes_nothing():
    sets = random_sets(3)
    with_free, without = union_of([sets[0], np.empty(0, np.int64), *sets[1:]]), union_of(sets)
    assert with_free.piece_ids.tolist() == without.piece_ids.tolist()
    assert not with_free.allowed[1].any()
    assert np.array_equal(with_free.allowed[[0, 2, 3]], without.allowed)


def test_a_union_without_sentences_has_columns_of_padding_only():
    union = union_of([])
    assert union.piece_ids.tolist() == [EOS] * COLUMN_MULTIPLE
    assert union.allowed.shape == (0, COLUMN_MULTIPLE)
