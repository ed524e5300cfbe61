"""The requests of all clients and how they ended, one JSON line for each, for tests.reliability.checker."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lingon.bench.results_file import percentile

OK, CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE = "OK", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE"
RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
NOT_BEGUN = ("NOT_BEGUN", "WONT_FINISH")
"""The reasons with which the server rejects or drops a request that cannot meet its deadline, before it runs."""

KILLED = "KILLED"
"""The code of a request whose client process was killed, so that no client received its end."""

MAX_CHARACTERS = 10_000  # characters; of a longer text only the beginning is written
TO_WALL = time.time() - time.monotonic()  # seconds to add to a monotonic time to get the wall clock of a server's log


@dataclass(frozen=True, slots=True)
class TextOutcome:
    """The end of one text of a request. index: its position in the request."""

    index: int
    code: str
    text: str = ""


@dataclass(kw_only=True, slots=True)
class Outcome:
    """One request and how it ended. Times are of `time.monotonic`, which all processes of a machine share.

    id: the x-request-id that the client sent; request_id: the one that the server returned
    due: when it should have been sent. If it was sent later, the load generator lagged
    ended: None while the client has no answer
    first: when the first message of a stream arrived
    deadline, cancel_after: seconds after it was sent; None is never
    reason: of `google.rpc.ErrorInfo`
    """

    id: str
    method: str
    texts: tuple[str, ...]
    beam_size: int = 1
    deadline: float | None = None
    cancel_after: float | None = None
    due: float
    sent: float
    first: float | None = None
    ended: float | None = None
    code: str = ""
    reason: str = ""
    results: list[TextOutcome] = field(default_factory=list)
    version: str = ""
    request_id: str = ""

    @property
    def milliseconds(self) -> float:
        """The time from when the request was due to its end; infinite if it has not ended."""
        return float("inf") if self.ended is None else 1000 * (self.ended - self.due)

    @property
    def lag(self) -> float:
        """Milliseconds by which the request was sent late."""
        return 1000 * (self.sent - self.due)

    @property
    def good(self) -> bool:
        """Whether every text was translated."""
        return self.code == OK and all(result.code == OK for result in self.results)


class History:
    """All requests of a run from all clients, also those that never ended."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._fates: list[Outcome] = []

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._fates)

    def __len__(self) -> int:
        return len(self._fates)

    def new_id(self, client: str) -> str:
        """Return an id that is unique in this run."""
        return f"{client}-{next(self._numbers)}"

    def add(self, outcome: Outcome) -> Outcome:
        """Record a request that is being sent. The client adds its end later."""
        self._fates.append(outcome)
        return outcome

    def extend(self, outcomes: Iterable[Outcome]) -> None:
        """Add the records of other processes."""
        self._fates.extend(outcomes)

    def of(self, *codes: str) -> list[Outcome]:
        """Return the requests that ended with one of these codes."""
        return [outcome for outcome in self._fates if outcome.code in codes]

    def save(self, path: Path) -> None:
        """Write all requests as JSON lines."""
        path.write_text("".join(line(outcome) for outcome in self._fates), encoding="utf-8")


def p99(outcomes: Iterable[Outcome]) -> float:
    """Return the 99th percentile of latencies in milliseconds. A request that was not translated counts as infinite."""
    return percentile([outcome.milliseconds if outcome.good else math.inf for outcome in outcomes], 99)


def line(outcome: Outcome) -> str:
    """Return a request as one line of JSON, in which a very long text is cut."""
    values = asdict(outcome)
    values["texts"] = [
        text if len(text) <= MAX_CHARACTERS else f"{text[:100]}... ({len(text)} characters)" for text in outcome.texts
    ]
    return json.dumps(values, ensure_ascii=False) + "\n"


def read(path: Path) -> list[Outcome]:
    """Return the requests of a file, without a last line that a kill cut off."""
    # Not splitlines: it also ends a line at U+2028 and others, which JSON leaves as they are.
    *lines, _cut_off = path.read_text(encoding="utf-8").split("\n")
    return [from_json(json.loads(text)) for text in lines]


def from_json(values: Mapping[str, Any]) -> Outcome:
    """Return the request of a JSON object."""
    results = [TextOutcome(**result) for result in values["results"]]
    return Outcome(**{**values, "texts": tuple(values["texts"]), "results": results})
