"""The warnings of the guard about a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Generator, Iterable

from lingon.serving.guard.judge import Flag, Sentence, judge
from lingon.translation.v1 import translation_pb2 as pb

MESSAGES = {
    Flag.EMPTY: "the translation has no text",
    Flag.REPETITION: "the translation repeats itself",
    Flag.COPY: "the translation is a copy of its source",
    Flag.NUMBERS: "the translation has other numbers than its source",
    Flag.UNREADABLE: "the model does not know many characters of the source",
}


def guard_warnings(
    sentences: Iterable[Sentence], unreadable: Container[int]
) -> Generator[None, None, list[pb.Warning]]:
    """Return a warning for each flag of a text; yields between its sentences, since there may be a thousand.

    unreadable: see `judge`
    """
    counts, total = Counter[Flag](), 0
    for sentence in sentences:
        counts.update(judge(sentence, unreadable))
        total += 1
        yield
    found = []
    for flag in sorted(counts):
        share = f"{counts[flag]} of {total} parts: " if total > 1 else ""
        found.append(pb.Warning(code=flag.code, message=share + MESSAGES[flag]))
    return found
