"""Cases 27 to 32: whatever comes over the wire or lies in a bundle. Tests prove them.

TEST_SCALE=full has those tests try for hours; what a bound says of numbers is without it.
"""

from __future__ import annotations

from chaos.case import backed

backed(
    27,
    "size of messages",
    "limit and one more, 5 MB, a gzip bomb of 200 MB, 20 KB of metadata: RESOURCE_EXHAUSTED, memory bounded, ready",
    "tests/hostile/test_messages.py",
)
backed(
    28,
    "fuzz",
    "requests, tokenizer, bytes and frames on the port: no crash, no hang over 1 s, no UNKNOWN, no code of no contract",
    "tests/hostile/test_fuzz.py",
    "tests/hostile/test_frames.py",
    "tests/hostile/test_strangers.py",
)
backed(
    29,
    "odd Unicode",
    "OK or INVALID_ARGUMENT; the tokenizer at most 5 ms/KB, twice the text at most 2.5 times the time",
    "tests/hostile/test_unicode.py",
)
backed(
    30,
    "abuse",
    "200 wrong requests of each kind: memory grows by 1 MiB a 100 at most, no text in logs, no exception in replies",
    "tests/hostile/test_abuse.py",
)
backed(31, "a model without end", "stops at its bound and says so", "tests/hostile/test_endless.py")
backed(
    32,
    "altered bundles",
    "a flipped bit, cut, swapped, linked, absurd: refused within 2 s naming the file, never served",
    "tests/hostile/test_bundle_files.py",
    "tests/hostile/test_bundle_values.py",
)
