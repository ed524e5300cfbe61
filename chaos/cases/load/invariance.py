"""Cases 22 to 26: a sentence translates the same alone and in any batch. Tests prove them."""

from __future__ import annotations

from chaos.case import backed

backed(
    22,
    "batch invariance",
    "500 texts, int8 and fp32, random batches and arrival times, 5 seeds: the same tokens, bit-identical scores",
    "tests/invariance/test_batch_invariance.py",
)
backed(23, "cache isolation", "unused slots filled with NaN: no output changes", "tests/invariance/test_poison.py")
backed(
    24,
    "length limits",
    "1 token, the limit, one more, a word of 1 MB, spaces, nothing: documented codes, never a silent cut",
    "tests/hostile/test_lengths.py",
)
backed(
    25,
    "NaN in one row",
    "that text INTERNAL; the others of its batch as alone; the counter + 1",
    "tests/invariance/test_nan.py",
)
backed(26, "determinism", "after a restart, on 1 and 2 threads: the same bytes", "tests/invariance/test_determinism.py")
