"""What is done with a document takes time in proportion to its size, whatever is in it.

With LINGON_PATTERNS=20000 and LINGON_SEED=7 in the environment other patterns, and more, are measured.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

from lingon import documents
from tests.support.growth import LINEAR
from tests.support.hostile_documents import SUFFIXES, growth, patterns

WORTH = 0.02  # seconds of CPU time, well above noise
COUNT = int(os.environ.get("LINGON_PATTERNS", "6"))
SEED = int(os.environ.get("LINGON_SEED", "1"))


def test_all_kinds_of_documents_have_patterns():
    assert {*SUFFIXES, ".htm", ".pot", ".ssa", ".yaml", ".xliff"} == set(documents.SUFFIXES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_twice_the_size_takes_twice_the_time(suffix: str):
    found = {pattern: growth(pattern, WORTH) for pattern in islice(patterns(SEED, suffix), COUNT)}
    assert [f"{pattern}: {growth}" for pattern, growth in found.items() if growth.ratio > LINEAR] == []
