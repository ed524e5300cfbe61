"""What is done with a document takes time in proportion to its size, whatever is in it.

With LINGON_PATTERNS=20000 and LINGON_SEED=7 in the environment other patterns, and more, are measured.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

from lingon import documents
from tests.support.hostile_documents import SUFFIXES, growth, patterns

MOST_RATIO = 2.3  # of the times of a file of twice the size
WORTH = 0.02  # seconds of CPU time, well above noise
COUNT = int(os.environ.get("LINGON_PATTERNS", "6"))
SEED = int(os.environ.get("LINGON_SEED", "1"))


def test_all_kinds_of_documents_have_patterns():
    assert {*SUFFIXES, ".htm", ".xliff"} == set(documents.SUFFIXES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_twice_the_size_takes_twice_the_time(suffix: str):
    ratios = {pattern: growth(pattern, WORTH, MOST_RATIO) for pattern in islice(patterns(SEED, suffix), COUNT)}
    assert [f"{ratio:.2f} {pattern}" for pattern, ratio in ratios.items() if ratio > MOST_RATIO] == []
