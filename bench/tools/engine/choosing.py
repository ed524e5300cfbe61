"""What it takes to choose a token in NumPy: draws, and rows of requests with restrictions, at two vocabulary sizes.

    python -m lingon.bench.tools.engine.choosing

Logits are normally distributed, with a few likely tokens, as a trained model has them, or without ("flat"). Every
figure is the median of rounds in which all kinds take turns. "draw, by a sort" is how the engine drew before.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from lingon.bench.results_file import save
from lingon.serving.constraints.forced import ForcedWords
from lingon.serving.constraints.pieces import Pieces
from lingon.serving.constraints.rules import Progress, Rules
from lingon.serving.constraints.spelling import Spelling
from lingon.serving.decoding.allocation import allocate
from lingon.serving.decoding.job import Sampling
from lingon.serving.decoding.ruled_row import Candidates, RowState, RuledRow, largest
from lingon.serving.decoding.sampling import draw
from lingon.serving.decoding.search import Ranked, rank
from lingon.text import UNK

VOCABULARIES = (6_000, 32_000)
BEAM_SIZE = 4
TOKENS = tuple(range(100, 140))  # of the translation so far
SAMPLINGS = {
    "": Sampling(),
    ", top_p 0.9": Sampling(top_p=0.9),
    ", top_k 40": Sampling(top_k=40),
    ", temperature 10 and top_p 0.9": Sampling(temperature=10.0, top_p=0.9),
}


def draw_by_a_sort(logits: np.ndarray, sampling: Sampling, step: int) -> int:
    """Draw from the tokens sorted by their probability."""
    order = np.argsort(-logits, kind="stable")
    scaled = logits[order].astype(np.float64) / sampling.temperature
    probabilities = np.exp(scaled - scaled[0])
    if sampling.top_k:
        probabilities[sampling.top_k :] = 0
    probabilities /= probabilities.sum()
    if sampling.top_p < 1:
        before = np.cumsum(probabilities) - probabilities
        probabilities[before >= sampling.top_p] = 0
    cumulative = np.cumsum(probabilities)
    random = np.random.Generator(np.random.Philox(key=sampling.seed, counter=[step, sampling.stream, 0, 0]))
    return int(order[np.searchsorted(cumulative, random.random() * cumulative[-1], side="right")])


def logits_of(vocab: int, *, peaked: bool) -> np.ndarray:
    """Random logits, (vocab); peaked: whether a few tokens have most of the probability."""
    random = np.random.default_rng(0)
    logits = random.standard_normal(vocab).astype(np.float32)
    if peaked:
        logits[random.integers(0, vocab, 8)] += np.arange(8, 16, dtype=np.float32)
    return logits


def vocabulary_of(size: int) -> Pieces:
    """Random pieces of one to six letters, half of them at the beginning of a word."""
    random = np.random.default_rng(1)
    letters = (bytes(random.integers(97, 123, random.integers(1, 7)).astype(np.uint8)) for _ in range(size))
    return Pieces([b""] * (UNK + 1) + [b" " * (at % 2) + text for at, text in enumerate(letters)][UNK + 1 :], {})


def rules_of(pieces: Pieces) -> dict[str, Rules]:
    """The most of each kind of restriction that a request may have."""
    random = np.random.default_rng(2)
    words = [bytes(random.integers(97, 123, 4).astype(np.uint8)) for _ in range(64)]
    plain, vocab = Spelling(pieces), len(pieces.texts)
    forced = [(token, token + 1, token + 2) for token in range(1000, 1080, 10)]
    texts = [b"".join(pieces.texts[token] for token in tokens).strip() for tokens in forced]
    return {
        "restriction that excludes nothing": Rules(spelling=plain, vocab=vocab, min_tokens=1),
        "64 forbidden words": Rules(spelling=Spelling(pieces, [*words, b"a", b"e"]), vocab=vocab),
        "no_repeat_ngram_size 3": Rules(spelling=plain, vocab=vocab, no_repeat_ngram=3),
        "repetition_penalty": Rules(spelling=plain, vocab=vocab, repetition_penalty=1.2),
        "8 forced words": Rules(spelling=plain, vocab=vocab, forced=ForcedWords(pieces, texts, forced)),
    }


def restrict(rules: Rules, progress: Progress, logits: np.ndarray, likeliest: Candidates) -> None:
    """Choose the candidates of one step of a sentence with a beam of BEAM_SIZE."""
    state = RowState(progress, TOKENS, len(TOKENS), 60)
    rows = [RuledRow(rules, state, logits.copy(), likeliest) for _ in range(BEAM_SIZE)]
    found = [row.candidates(2 * BEAM_SIZE, end=False) for row in rows]
    if rules.forced is not None:
        totals = -np.arange(BEAM_SIZE, dtype=np.float32)
        ids, log_probs = np.stack([each.ids for each in found]), np.stack([each.log_probs for each in found])
        ranked = rank(totals[None], ids[None], log_probs[None])
        columns = (column[0] for column in ranked)
        allocate(rows, totals, Candidates(ids, log_probs), Ranked(*columns))


def kinds(vocab: int) -> Iterator[tuple[str, Callable[[], object], int]]:
    """Each kind of work: its name, a function that does it, and for how many rows."""
    peaked = logits_of(vocab, peaked=True)
    for shape, logits in (("", peaked), (", flat", logits_of(vocab, peaked=False))):
        for name, sampling in SAMPLINGS.items():
            yield f"draw, by a sort{name}{shape}", partial(draw_by_a_sort, logits, sampling, 3), 1
            yield f"draw{name}{shape}", partial(draw, logits, sampling, 3), 1
    ids = largest(peaked, 2 * BEAM_SIZE)
    likeliest = Candidates(ids, peaked[ids] - peaked[ids[0]])
    for name, rules in rules_of(vocabulary_of(vocab)).items():
        yield name, partial(restrict, rules, rules.start(TOKENS), peaked, likeliest), BEAM_SIZE


def measure(vocab: int, rounds: int) -> list[dict[str, Any]]:
    """Median microseconds of every kind for each row and step."""
    works = list(kinds(vocab))
    found: dict[str, list[float]] = {name: [] for name, _, _ in works}
    for _ in range(rounds):
        for name, work, rows in works:
            work()
            start = time.perf_counter()
            work()
            found[name].append(1e6 * (time.perf_counter() - start) / rows)
    return [
        {"vocabulary": vocab, "work": name, "microseconds": round(statistics.median(each), 1)}
        for name, each in found.items()
    ]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which every kind of work has its turn.")] = 200,
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("bench/results"),
) -> None:
    """Print and save what a row of a step takes."""
    rows = [row for vocab in VOCABULARIES for row in measure(vocab, rounds)]
    table = Table("vocabulary", "work", "microseconds a row and step")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)
    path = save("choosing", rows, results, rounds=rounds, load_average=round(os.getloadavg()[0], 1))
    typer.echo(f"written: {path}")


if __name__ == "__main__":
    typer.run(main)
