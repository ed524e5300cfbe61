"""What clients asked and what became of it: the record that the checker judges, one JSON line a request."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lingon.bench.statistics import percentile

OK, CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE = "OK", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE"
RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
NOT_BEGUN = ("NOT_BEGUN", "WONT_FINISH")
"""Reasons of a request that its deadline kept from being begun."""

KILLED = "KILLED"
"""The fate of a request whose client was killed: nobody was left to hear how it ended."""

MOST = 10_000  # characters of a text that are written down
TO_WALL = time.time() - time.monotonic()
"""What turns the clock of a history into that of a server's log."""


@dataclass(frozen=True, slots=True)
class TextFate:
    """How one text of a request ended; index: its place in the request."""

    index: int
    code: str
    text: str = ""


@dataclass(kw_only=True, slots=True)
class Fate:
    """One request. Times are those of `time.monotonic`, which all processes of a machine share.

    id: what the request was sent under, as x-request-id; request_id: what the server called it
    due: when it should have been sent; later than that, the generator lagged
    ended: None while nobody has heard of it
    first: when the first answer of a stream came
    deadline, cancel_after: in seconds from when it was sent; None is never
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
    results: list[TextFate] = field(default_factory=list)
    version: str = ""
    request_id: str = ""

    @property
    def milliseconds(self) -> float:
        """From when it was due to its end; a request that has not ended takes for ever."""
        return float("inf") if self.ended is None else 1000 * (self.ended - self.due)

    @property
    def lag(self) -> float:
        """Milliseconds by which it was sent late."""
        return 1000 * (self.sent - self.due)

    @property
    def good(self) -> bool:
        """Whether every text was translated."""
        return self.code == OK and all(result.code == OK for result in self.results)


class History:
    """All requests of a run, by whatever client; those that never ended are in it too."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._fates: list[Fate] = []

    def __iter__(self) -> Iterator[Fate]:
        return iter(self._fates)

    def __len__(self) -> int:
        return len(self._fates)

    def new_id(self, client: str) -> str:
        """An id that no other request of this run has."""
        return f"{client}-{next(self._numbers)}"

    def add(self, fate: Fate) -> Fate:
        """Write down a request that is being sent; its end is filled in as it is known."""
        self._fates.append(fate)
        return fate

    def extend(self, fates: Iterable[Fate]) -> None:
        """Take in what other processes wrote down."""
        self._fates.extend(fates)

    def of(self, *codes: str) -> list[Fate]:
        """Those that ended with one of these codes."""
        return [fate for fate in self._fates if fate.code in codes]

    def save(self, path: Path) -> None:
        """Write all as JSON lines."""
        path.write_text("".join(line(fate) for fate in self._fates), encoding="utf-8")


def p99(fates: Iterable[Fate]) -> float:
    """Of their milliseconds; what was not translated has taken for ever."""
    return percentile([fate.milliseconds if fate.good else math.inf for fate in fates], 99)


def line(fate: Fate) -> str:
    """A request as one line of JSON; of a text that is far too long, only its beginning."""
    values = asdict(fate)
    values["texts"] = [
        text if len(text) <= MOST else f"{text[:100]}... ({len(text)} characters)" for text in fate.texts
    ]
    return json.dumps(values, ensure_ascii=False) + "\n"


def read(path: Path) -> list[Fate]:
    """The requests of a file; a last line that was cut off by a kill is left out."""
    fates = []
    for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if text.endswith("\n"):
            values = json.loads(text)
            results = [TextFate(**result) for result in values.pop("results")]
            fates.append(Fate(**{**values, "texts": tuple(values["texts"])}, results=results))
    return fates
