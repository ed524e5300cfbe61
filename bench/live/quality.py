"""Quality against lag: test sets are spoken to a server with each policy, and translated as whole texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingon.bench.live.lagging import Talk, lags, write_simuleval
from lingon.bench.live.speaker import Languages, Policy, Server, listen
from lingon.bench.live.word_times import Speech
from lingon.bench.results_file import Row, search_name
from lingon.errors import LingonError
from lingon.scoring import score
from lingon.translation.v1 import translation_pb2 as pb

WAYS = (
    *(Policy("local_agreement", updates) for updates in (2, 3, 4)),
    *(Policy("wait_k", words) for words in (1, 3, 5, 7, 9)),
    *(Policy("alignment", words) for words in (1, 2, 3, 5, 8)),
    Policy("sentences"),
)
"""The policies and lags of a run."""

OFFLINE_BEAMS = (1, 4)
IN_REQUEST = 32  # texts of a request without a speaker
MOST_LAG_MS, MOST_BLEU_LOST = 1500.0, 2.0
"""The bar: with at most this lag, live translation loses at most so much against whole texts."""


@dataclass(frozen=True, slots=True)
class SpokenSet:
    """Speeches of one kind, such as everyday sentences."""

    name: str
    speeches: Sequence[Speech]

    @property
    def references(self) -> list[str]:
        """The translation of each speech by a person."""
        return [speech.reference for speech in self.speeches]

    def facts(self) -> dict[str, Any]:
        """Return its size, and how fast it is spoken."""
        words = sum(len(speech.words) for speech in self.speeches)
        seconds = sum(speech.milliseconds for speech in self.speeches) / 1000
        return {"set": self.name, "texts": len(self.speeches), "words": words, "spoken_seconds": round(seconds)}


async def whole_rows(server: Server, texts: SpokenSet, languages: Languages) -> list[Row]:
    """Translate the texts of a set without speakers, greedily and with beam search, and return a row for each."""
    rows = []
    for beam_size in OFFLINE_BEAMS:
        found: list[str] = []
        for first in range(0, len(texts.speeches), IN_REQUEST):
            part = texts.speeches[first : first + IN_REQUEST]
            request = pb.TranslateRequest(
                texts=[speech.text(languages.source) for speech in part],
                source_language_code=languages.source,
                target_language_code=languages.target,
                options=pb.DecodingOptions(beam_size=beam_size),
            )
            reply = await server.stub.Translate(request)
            found += [result.hypotheses[0].text if result.hypotheses else "" for result in reply.results]
        scores = score(found, texts.references, languages.target)
        row = {"set": texts.name, "policy": f"whole texts, {search_name(beam_size)}"}
        rows.append({**row, "bleu": round(scores.bleu, 2), "chrf": round(scores.chrf, 2)})
    return rows


async def speak_all(
    server: Server, speeches: Sequence[Speech], policy: Policy, languages: Languages, at_once: int
) -> list[Talk]:
    """Speak all speeches, so many at a time, and return their talks in the same order."""
    talks: dict[int, Talk] = {}
    numbers = iter(range(len(speeches)))

    async def speak() -> None:
        for number in numbers:
            talks[number] = await listen(server, speeches[number], policy, languages)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(speak())
    return [talks[number] for number in range(len(speeches))]


def row_of(texts: SpokenSet, policy: Policy, talks: Sequence[Talk], whole: Sequence[Row], language: str) -> Row:
    """Return the row of a policy. whole: the rows of whole texts, with which its BLEU is compared."""
    scores, behind = score([talk.translation for talk in talks], texts.references, language), lags(talks)
    return {
        "set": texts.name,
        "policy": policy.name,
        "lag_words": policy.lag_words,
        "bleu": round(scores.bleu, 2),
        "chrf": round(scores.chrf, 2),
        **{f"lost, {row['policy']}": round(row["bleu"] - scores.bleu, 2) for row in whole},
        "al_words": round(behind.al_words, 2),
        "laal_words": round(behind.laal_words, 2),
        "al_ms": round(behind.al_ms),
        "laal_ms": round(behind.laal_ms),
        "laal_ca_ms": round(behind.laal_ca_ms),
        "erasure": round(behind.erasure, 3),
    }


async def measure(
    server: Server,
    texts: SpokenSet,
    policies: Sequence[Policy],
    languages: Languages,
    at_once: int,
    write: Callable[[str], None],
    logs: Path | None = None,
) -> list[Row]:
    """Return the rows of a set: of whole texts, and of each policy that the model has.

    at_once: speakers that speak at the same time
    logs: folder in which the talks are written for SimulEval
    """
    rows = await whole_rows(server, texts, languages)
    whole = list(rows)
    for policy in policies:
        try:
            talks = await speak_all(server, texts.speeches, policy, languages, at_once)
        except* LingonError as errors:
            raise errors.exceptions[0] from None
        rows.append(row_of(texts, policy, talks, whole, languages.target))
        last = rows[-1]
        write(f"{texts.name}, {policy.label}: BLEU {last['bleu']}, LAAL {last['laal_ms']} ms")
        if logs is not None:
            write_simuleval(talks, logs / f"{texts.name}-{policy.label.replace(' ', '-')}", languages.target)
    return rows


def best_within_lag(rows: Sequence[Row], name: str) -> Row | None:
    """Return the row of a set with the best BLEU of those with a LAAL of MOST_LAG_MS at most; None if there is none."""
    near = [row for row in rows if row["set"] == name and row.get("laal_ms", float("inf")) <= MOST_LAG_MS]
    return max(near, key=lambda row: float(row["bleu"]), default=None)
