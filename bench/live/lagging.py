"""How far a translation is behind its speaker, and how often it is rewritten: measures of logs, without a model.

All measures have the definitions of SimulEval 1.1.4 (Ma et al. 2020, "SimulEval: An Evaluation Toolkit for Simultaneous
Translation"), to which tests/data/simuleval.json compares them, but normalised erasure, which SimulEval does not have.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lingon.bench.live.word_times import joined
from lingon.files import write_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Talk:
    """The translation of one speech, with a delay for each of its words.

    words: of the translation, white space aside; characters in languages without blanks
    read: for each of them the number of source words that were read when it was agreed
    read_ms: the same in milliseconds of the speech: when the last of these source words ended
    elapsed_ms: the same with the time in which the server computed
    shown: after each update the words that a reader sees: the agreed and the tentative ones
    """

    source: str
    source_words: int
    source_ms: float
    reference: str
    reference_words: int
    translation: str
    words: Sequence[str]
    read: Sequence[int]
    read_ms: Sequence[float]
    elapsed_ms: Sequence[float]
    shown: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lags:
    """Means over talks: average lagging and its length-adaptive form, in words and in milliseconds.

    laal_ca_ms: computation-aware
    erasure: normalised, of all that was shown
    """

    al_words: float
    laal_words: float
    al_ms: float
    laal_ms: float
    laal_ca_ms: float
    erasure: float


def average_lagging(delays: Sequence[float], source_length: float, target_length: float) -> float:
    """Return the average lagging of one text (Ma et al. 2019, STACL, https://arxiv.org/abs/1810.08398, section 4).

    It is the mean distance to a translator that writes evenly while the source is spoken, up to the first target word
    that was written with the whole source.

    delays: of each target word, in the unit of source_length; at least one
    target_length: words that the ideal translator writes: those of the reference
    """
    ideal = source_length / target_length  # time of a word
    late = next((place for place, delay in enumerate(delays, start=1) if delay >= source_length), len(delays))
    return sum(delay - place * ideal for place, delay in enumerate(delays[:late])) / late


def length_adaptive_lagging(delays: Sequence[float], source_length: float, reference_length: float) -> float:
    """Return LAAL (Papi et al. 2022, "Over-Generation Cannot Be Rewarded", https://arxiv.org/abs/2206.05807).

    It is the average lagging with the longer of translation and reference, so that a translation gains nothing by more
    words than the reference has.
    """
    return average_lagging(delays, source_length, max(len(delays), reference_length))


def erased(shown: Sequence[Sequence[str]]) -> int:
    """Return how many words were taken back or replaced: of each update those after the first that changed."""
    return sum(len(before) - _common(before, after) for before, after in itertools.pairwise(shown))


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common prefix."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def normalised_erasure(talks: Iterable[Talk]) -> float:
    """Return the words erased for each word of the final translations (Arivazhagan et al. 2020, "Re-translation versus
    Streaming for Simultaneous Translation", https://arxiv.org/abs/2004.03643, section 2): 0 is without flicker.
    """
    pairs = [(erased(talk.shown), len(talk.words)) for talk in talks]
    return sum(count for count, _ in pairs) / max(sum(words for _, words in pairs), 1)


def lags(talks: Sequence[Talk]) -> Lags:
    """Return the measures of talks. As in SimulEval, a talk without a translation counts in none of the lags."""
    written = [talk for talk in talks if talk.words]
    words = [(talk.read, talk.source_words, talk.reference_words) for talk in written]
    times = [(talk.read_ms, talk.source_ms, talk.reference_words) for talk in written]
    elapsed = [(talk.elapsed_ms, talk.source_ms, talk.reference_words) for talk in written]
    return Lags(
        al_words=_mean(average_lagging, words),
        laal_words=_mean(length_adaptive_lagging, words),
        al_ms=_mean(average_lagging, times),
        laal_ms=_mean(length_adaptive_lagging, times),
        laal_ca_ms=_mean(length_adaptive_lagging, elapsed),
        erasure=normalised_erasure(talks),
    )


def _mean(
    lagging: Callable[[Sequence[float], float, float], float], talks: Sequence[tuple[Sequence[float], float, float]]
) -> float:
    return statistics.fmean(lagging(*talk) for talk in talks) if talks else math.nan


def write_simuleval(talks: Sequence[Talk], folder: Path, language: str) -> None:
    """Write the logs of talks for SimulEval, with delays in words and in milliseconds.

    `simuleval --score-only --output FOLDER/words --latency-metrics AL LAAL` scores them; with FOLDER/ms and
    `--computation-aware` those with the time of computing too.

    language: of the translations
    """
    for unit, kind in (("words", "text"), ("ms", "speech")):
        lines = []
        for index, talk in enumerate(talks):
            delays, length = (talk.read, talk.source_words) if unit == "words" else (talk.read_ms, talk.source_ms)
            record = {
                "index": index,
                "prediction": joined(talk.words, language),
                "delays": list(delays),
                "elapsed": list(talk.elapsed_ms),
                "prediction_length": len(talk.words),
                "reference": talk.reference,
                "source": talk.source,
                "source_length": length,
            }
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        (folder / unit).mkdir(parents=True, exist_ok=True)
        write_text(folder / unit / "instances.log", "".join(lines))
        write_text(folder / unit / "config.yaml", f"source_type: {kind}\ntarget_type: text\n")
