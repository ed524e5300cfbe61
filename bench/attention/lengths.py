"""BLEU against the length of the source: texts of joined sentences to train and to test on, and the rows.

Bahdanau et al. (2015), figure 2, train on sentences of up to 30 and up to 50 words. Tatoeba has few sentences of more
than 15 words, so that a text here is one or more of its sentences in random order: short and long texts have the same
words and are equally hard apart from their length.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lingon.bench.attention.plan import PAIR, TRAIN, VALID, Corpus
from lingon.bench.attention.scores import Translations
from lingon.bench.workloads.sample_corpus import corpus_files, write_corpus
from lingon.lines import read_parallel
from lingon.scoring import score

ORIGIN = "tatoeba"
LONGEST_TEST = 60  # source words of the longest test text
BUCKET = 10  # source words
MAX_TOKENS = 128  # of a training pair; a text of 60 words has 70 to 110
TEST = f"{ORIGIN}-up-to-{LONGEST_TEST}"

Pair = tuple[str, str]


def corpus_up_to(words: int) -> Corpus:
    """The corpus of joined sentences with at most so many source words."""
    return Corpus(f"{ORIGIN}-up-to-{words}", "test", MAX_TOKENS)


def test_files(folder: Path) -> tuple[Path, Path]:
    """Source and reference of the test set of all lengths."""
    return corpus_files(folder, f"{TEST}.{PAIR}", "test")


def write_corpora(data: Path, folder: Path, longest: Sequence[int]) -> None:
    """Write the training, validation and test texts into folder, from the sentences of Tatoeba in data; once.

    longest: source words of the longest training texts
    """
    wanted = [(f"{ORIGIN}-up-to-{words}", words, part) for words in longest for part in (TRAIN, VALID)]
    for name, words, part in [*wanted, (TEST, LONGEST_TEST, "test")]:
        if not all(path.is_file() for path in corpus_files(folder, f"{name}.{PAIR}", part)):
            pairs = list(read_parallel(*corpus_files(data, f"{ORIGIN}.{PAIR}", part)))
            write_corpus(folder, f"{name}.{PAIR}", part, joined(pairs, words))


def joined(pairs: Sequence[Pair], longest: int, seed: int = 1) -> Iterator[Pair]:
    """Join sentences to texts of 1 to `longest` source words; each wanted length is equally likely.

    Every sentence is used once, except those of more than `longest` words, which are left out.
    """
    draw = random.Random(seed)
    order = draw.sample(pairs, len(pairs))
    group: list[Pair] = []
    words, wanted = 0, draw.randint(1, longest)
    for pair in order:
        more = len(pair[0].split())
        if more > longest:
            continue
        if words + more > longest:
            yield _text(group)
            group, words, wanted = [], 0, draw.randint(1, longest)
        group.append(pair)
        words += more
        if words >= wanted:
            yield _text(group)
            group, words, wanted = [], 0, draw.randint(1, longest)
    if group:
        yield _text(group)


def _text(group: Sequence[Pair]) -> Pair:
    return " ".join(source for source, _ in group), " ".join(target for _, target in group)


def rows_by_length(found: Translations) -> list[dict[str, Any]]:
    """BLEU of the texts of each bucket of source words; without a bucket that has no text."""
    buckets: dict[int, list[int]] = {}
    for index, source in enumerate(found.sources):
        buckets.setdefault((len(source.split()) - 1) // BUCKET, []).append(index)
    rows = []
    for bucket, members in sorted(buckets.items()):
        scores = score([found.hypotheses[index] for index in members], [found.references[index] for index in members])
        words = [bucket * BUCKET + 1, (bucket + 1) * BUCKET]
        rows.append({"words": words, "texts": len(members), "bleu": round(scores.bleu, 2)})
    return rows
