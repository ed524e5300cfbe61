"""Cases 27 to 32: hostile requests and bundles. Tests prove them.

With TEST_SCALE=full those tests run for hours; the counts in the bounds hold without it.
"""

from __future__ import annotations

from chaos.case import backed

backed(
    27,
    "message size",
    "one byte above the limit, 5 MB, a gzip bomb of 200 MB, 20 KB of metadata: RESOURCE_EXHAUSTED, memory bounded",
    "tests/hostile/test_messages.py",
)
backed(
    28,
    "fuzz",
    "random requests, texts, bytes and HTTP/2 frames: no crash, no hang over 1 s, no UNKNOWN, documented codes only",
    "tests/hostile/test_fuzz.py",
    "tests/hostile/test_frames.py",
    "tests/hostile/test_unknown_methods.py",
)
backed(
    29,
    "odd Unicode",
    "OK or INVALID_ARGUMENT; the tokenizer takes <= 5 ms/KB, and <= 2.5 x the time for twice the text",
    "tests/hostile/test_unicode.py",
)
backed(
    30,
    "abuse",
    "200 invalid requests of each kind: memory growth <= 1 MiB per 100; no text in logs, no exception text in replies",
    "tests/hostile/test_abuse.py",
)
backed(31, "endless model", "a translation stops at its length limit with a warning", "tests/hostile/test_endless.py")
backed(
    32,
    "altered bundles",
    "flipped bits, truncated, swapped, linked or absurd files: refused within 2 s naming the file, never served",
    "tests/hostile/test_bundle_files.py",
    "tests/hostile/test_bundle_values.py",
)
