"""A server with the shipped model as a user starts it, and checks of what clients in other languages got from it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chaos.verdict.checker as checker
from chaos.server import Server
from chaos.verdict.history import Outcome
from chaos.verdict.prometheus import Scrape
from lingon import Client
from tests.support.eventually import eventually_blocking
from tests.support.repository import ROOT

QUEUE = 256  # texts in the queue of the shared server, so that a part of 1,000 calls at once is refused
IDLE = 20.0  # seconds until nothing runs any more, also on a busy machine


class ForeignServer:
    """A running `lingon serve models/en-de` that logs every call."""

    def __init__(self, process: Server) -> None:
        self.process, self.address = process, process.address
        self._golden: dict[tuple[int, str], str] = {}

    def alone(self, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], str]:
        """The translation of each text by beam size, with nothing else in its batch: call this while nothing runs."""
        missing = [key for key in dict.fromkeys(wanted) if key not in self._golden]
        with Client(self.address) as client:
            for beam_size, text in missing:
                self._golden[beam_size, text] = client.translate(text, beam_size=beam_size).text
        return self._golden

    def scrape(self) -> Scrape:
        """The metrics when nothing is queued or running any more."""
        found: list[Scrape] = []

        def is_idle() -> bool:
            found.append(asyncio.run(self.process.scrape()))
            return checker.gauges_at_zero(found[-1]) == []

        eventually_blocking(is_idle, IDLE, pause=0.05)
        return found[-1]

    def violations(self, outcomes: Sequence[Outcome]) -> list[str]:
        """What is wrong with these requests: one without an end or with a wrong translation, one that the server knows
        otherwise, a wrong counter.
        """
        scrape, calls = self.scrape(), self.process.calls()
        sent = {outcome.id for outcome in outcomes}
        translated = [
            (outcome.beam_size, outcome.texts[result.index])
            for outcome in outcomes
            for result in outcome.results
            if result.code == "OK"
        ]
        return [
            *checker.ended_once(outcomes),
            *checker.same_as_alone(outcomes, self.alone(translated)),
            *checker.server_agrees(outcomes, [call for call in calls if call.request_id in sent]),
            *checker.counters_equal_log(calls, scrape),
            *self.process.tracebacks(),
        ]


@contextmanager
def foreign_server(folder: Path, **settings: Any) -> Iterator[ForeignServer]:
    """Run a server on free ports until the block ends; settings: those of lingon.serving.settings."""
    process = Server(
        folder=folder,
        model=ROOT / "models" / "en-de",
        cores=frozenset(os.sched_getaffinity(0)),
        settings={"log_level": "debug", **settings},
    )
    process.start()
    try:
        asyncio.run(process.ready())
        yield ForeignServer(process)
    finally:
        process.kill()
