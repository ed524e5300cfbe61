"""Cases 22 to 26: a sentence translates the same in company. Tests prove them."""

from __future__ import annotations

from chaos.case import backed

backed(
    22,
    "batch invariance",
    "500 texts, int8 and fp32, random company and arrival, 5 seeds: the same tokens, the same bits of scores",
    "tests/invariance/test_batch_invariance.py",
)
backed(23, "isolation of caches", "slots full of NaN before use: no output changes", "tests/invariance/test_poison.py")
backed(
    24,
    "edges of length",
    "1 token, the most, one more, a word of 1 MB, spaces, nothing: documented codes, never a silent cut",
    "tests/hostile/test_lengths.py",
)
backed(
    25,
    "no numbers in one row",
    "that text INTERNAL, its mates as alone, the counter + 1",
    "tests/invariance/test_nan.py",
)
backed(
    26, "the same again", "after a restart, on 1 and 2 threads: the same bytes", "tests/invariance/test_determinism.py"
)
