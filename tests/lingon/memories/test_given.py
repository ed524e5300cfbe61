"""Segments of a request: looked up as the same ones in a memory on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingon.memories.building import build
from lingon.memories.given import GivenMemory
from lingon.memories.memory import Memory
from lingon.memories.segment import Segment

WORDS = ["house", "House", "old", "is", "the", "Straße", "STRASSE", "é", "é", "12", "猫"]


def drawn(random_: random.Random, count: int) -> Iterator[Segment]:
    """Segments of which many have the same source but for its case, and several the same neighbours."""
    for number in range(count):
        source = " ".join(random_.choices(WORDS, k=random_.randint(1, 6)))
        around = random_.choice([("", ""), ("a", ""), ("a", "b"), ("A", "b")])
        yield Segment(source, f"target {number}", *around, changed=random_.randint(0, 3))


@pytest.mark.parametrize("seed", range(20))
def test_a_memory_in_a_request_finds_what_a_stored_one_finds(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    segments = list(drawn(random_, 120))
    build(tmp_path / "memory", segments)
    stored, given = Memory.open(tmp_path / "memory"), GivenMemory(segments)
    for query in drawn(random_, 60):
        text = random_.choice([query.source, f"  {query.source} ", f"{query.source} x"])
        for most in (1, 5):
            asked = (text, query.before, query.after)
            assert given.find(*asked, min_score=100, most=most) == stored.find(*asked, min_score=100, most=most)
            found, known = (memory.find(*asked, min_score=50, most=most) for memory in (given, stored))
            # The index of a stored one may miss some with a low score.
            assert [each.score for each in found] >= [each.score for each in known], asked


def test_other_segments_have_another_digest() -> None:
    one, other = Segment("a", "b"), Segment("a", "c")
    assert GivenMemory([one]).digest == GivenMemory([one]).digest
    assert len({GivenMemory(each).digest for each in ([one], [other], [one, Segment("c", "d")], [])}) == 4


def test_an_empty_text_and_an_empty_memory_find_nothing() -> None:
    assert GivenMemory([]).find("a") == GivenMemory([Segment("a", "b")]).find(" ") == []
