"""Pure functions that find violations in the outcomes of clients, the log of a server and its metrics."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tests.reliability.history import CANCELLED, DEADLINE_EXCEEDED, KILLED, OK, RESOURCE_EXHAUSTED, UNAVAILABLE, Outcome

_LINE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Series = tuple[str, frozenset[tuple[str, str]]]
"""The name of a time series and its labels."""


class Scrape:
    """The metrics of a server at one moment."""

    def __init__(self, values: dict[Series, float]) -> None:
        self.values = values

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text format of Prometheus. The label values of Lingon have no braces."""
        return cls(
            {
                (found["name"], frozenset(_LABEL.findall(found["labels"] or ""))): float(found["value"])
                for found in _LINE.finditer(text)
            }
        )

    @property
    def series(self) -> set[Series]:
        """The time series."""
        return set(self.values)

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum over all series with this name and these labels. Raise KeyError for a wrong name."""
        wanted = frozenset(labels.items())
        found = [value for (key, own), value in self.values.items() if key == name and wanted <= own]
        if not found:
            raise KeyError(f"no metric {name}{labels or ''}")
        return sum(found)

    def by(self, name: str, label: str) -> Counter[str]:
        """Return the sums of a metric by the values of one label, without zeros."""
        found: Counter[str] = Counter()
        for (key, own), value in self.values.items():
            if key == name and value:
                found[dict(own)[label]] += int(value)
        return found

    def quantile(self, name: str, share: float, since: Scrape | None = None) -> float:
        """Return a quantile of a histogram: the upper bound of the bucket that holds it; inf for an empty histogram.

        share: of the values, 0.99 for the 99th percentile
        since: an earlier scrape, whose values are subtracted
        """
        buckets: Counter[float] = Counter()
        for (key, own), value in self.values.items():
            if key == f"{name}_bucket":
                before = since.values.get((key, own), 0.0) if since else 0.0
                buckets[float(dict(own)["le"])] += int(value - before)
        total = buckets[float("inf")]
        return min(
            (bound for bound, count in buckets.items() if total and count >= share * total), default=float("inf")
        )


Golden = Mapping[tuple[int, str], str]
"""The translation of a text that is alone in its batch, by beam size and text."""

CONTRACT = frozenset(
    {
        OK,
        CANCELLED,
        DEADLINE_EXCEEDED,
        UNAVAILABLE,
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "UNIMPLEMENTED",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "PERMISSION_DENIED",
        "INTERNAL",
    }
)
GAUGES = ("lingon_requests_in_flight", "lingon_running_sentences", "lingon_queue_depth", "lingon_queue_tokens")
SET_BY_CLIENT = {CANCELLED, DEADLINE_EXCEEDED, KILLED}
"""Codes that the client sets itself, while the server may be sending its answer or may not know the request yet."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request as the server logged it.

    time: when it ended, in seconds since 1970; milliseconds: its duration inside the server
    """

    request_id: str
    method: str
    code: str
    milliseconds: float
    time: float


def ended_once(outcomes: Iterable[Outcome]) -> list[str]:
    """Check that every request ended once, with one result for every text, and that only a deadline is exceeded.

    Every request has a deadline in the client, so a lost answer would show as DEADLINE_EXCEEDED.
    """
    found, seen = [], Counter[str]()
    for outcome in outcomes:
        seen[outcome.id] += 1
        if outcome.ended is None or not outcome.code:
            found.append(f"{outcome.id} never ended")
        elif outcome.code not in CONTRACT and outcome.code != KILLED:
            found.append(f"{outcome.id} ended with {outcome.code}, which is not documented")
        elif outcome.ended < outcome.sent:
            found.append(f"{outcome.id} ended before it was sent")
        elif (outcome.code, outcome.deadline) == (DEADLINE_EXCEEDED, None):
            found.append(f"{outcome.id} got no answer, though it had no deadline")
        elif (outcome.code, outcome.cancel_after) == (CANCELLED, None):
            found.append(f"{outcome.id} was cancelled, but not by its client")
        places = sorted(result.index for result in outcome.results)
        if outcome.code == OK and places != list(range(len(outcome.texts))):
            found.append(f"{outcome.id} has results {places} for {len(outcome.texts)} texts")
        elif len(set(places)) != len(places):
            found.append(f"{outcome.id} has a text with two results: {places}")
        if outcome.code == OK and outcome.request_id != outcome.id:
            found.append(f"{outcome.id} was answered as {outcome.request_id or 'nothing'}")
    return found + [f"{name} was sent {count} times" for name, count in seen.items() if count > 1]


def same_as_alone(outcomes: Iterable[Outcome], golden: Golden) -> list[str]:
    """Check that every translation equals that of the text alone, also in answers that were cancelled later."""
    found = []
    for outcome in outcomes:
        for result in outcome.results:
            if result.code == OK and result.text != golden.get((outcome.beam_size, outcome.texts[result.index])):
                found.append(f"{outcome.id} text {result.index} is not translated as it is alone")
    return found


def only_codes(outcomes: Iterable[Outcome], allowed: Collection[str]) -> list[str]:
    """Check that requests and texts ended with no other codes than these."""
    found = [
        f"{outcome.id} ended with {outcome.code} {outcome.reason}"
        for outcome in outcomes
        if outcome.code not in allowed
    ]
    return found + [
        f"{outcome.id} text {result.index}: {result.code}"
        for outcome in outcomes
        for result in outcome.results
        if result.code not in allowed
    ]


def server_agrees(outcomes: Sequence[Outcome], calls: Sequence[Call]) -> list[str]:
    """Check that the server logged the same code as the client received, request by request.

    A client may cancel while the server answers. A request to a server that is down may not be in its log. The
    HTTP port asks for the list of models under the id of a request: such a call is no answer.
    """
    calls = [call for call in calls if call.method != "ListModels"]
    times = Counter(call.request_id for call in calls)
    found = [f"the server has answered {name} {count} times" for name, count in times.items() if count > 1]
    by_id = {call.request_id: call for call in calls}
    for outcome in outcomes:
        call = by_id.pop(outcome.id, None)
        if call is None:
            if outcome.code not in {*SET_BY_CLIENT, UNAVAILABLE}:
                found.append(f"{outcome.id} ended with {outcome.code}, but is not in the server's log")
        elif call.code != outcome.code and not _crossed(outcome, call):
            found.append(f"{outcome.id}: the client has {outcome.code}, the server {call.code}")
    return found + [f"the server has answered {name}, which no client sent" for name in by_id]


def _crossed(outcome: Outcome, call: Call) -> bool:
    if outcome.code in SET_BY_CLIENT:
        return call.code in {OK, CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE, RESOURCE_EXHAUSTED}
    return outcome.code == UNAVAILABLE and call.code in {OK, CANCELLED}  # the connection broke during the answer


def counters_equal_log(calls: Sequence[Call], scrape: Scrape) -> list[str]:
    """Check that the call counters equal the log, by method and code."""
    logged = Counter((call.method, call.code) for call in calls)
    counted: Counter[tuple[str, str]] = Counter()
    for (name, own), value in scrape.values.items():
        labels = dict(own)
        if name == "lingon_requests_total" and value:
            counted[labels["method"], labels["code"]] = int(value)
    return [
        f"{method} {code}: {logged[method, code]} in the log, {counted[method, code]} in the counter"
        for method, code in sorted(logged.keys() | counted.keys())
        if logged[method, code] != counted[method, code]
    ]


def counters_equal_log_until(calls: Sequence[Call], scrape: Scrape) -> list[str]:
    """Check that the counters of an early scrape equal the start of the log: one step counts and logs a call."""
    until = int(scrape.sum("lingon_requests_total"))
    if until > len(calls):
        return [f"{until} calls were counted, {len(calls)} are in the log"]
    return counters_equal_log(calls[:until], scrape)


def text_counters_agree(outcomes: Sequence[Outcome], calls: Sequence[Call], scrape: Scrape) -> list[str]:
    """Check that the text counters equal the clients' results, by code.

    Texts whose client did not wait for the answer may or may not be counted, and so may those of a call that ended
    early or was refused: the server may not have read it.
    """
    by_id = {call.request_id: call.code for call in calls}
    sure, early, open_ = Counter[str](), Counter[str](), 0
    for outcome in outcomes:
        code = by_id.get(outcome.id, UNAVAILABLE)
        if code == OK and outcome.code == OK:
            sure.update(result.code for result in outcome.results)
        elif code == OK or (outcome.method == "TranslateStream" and code != UNAVAILABLE):
            open_ += len(outcome.texts)
        elif code in (CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED):
            early[code] += len(outcome.texts)
        elif code != UNAVAILABLE:
            sure[code] += len(outcome.texts)
    counted = scrape.by("lingon_texts_total", "code")
    return [
        f"texts with {code}: {sure[code]} by the clients, {counted[code]} in the counter"
        for code in sorted((sure.keys() | counted.keys()) - {UNAVAILABLE})
        if not sure[code] <= counted[code] <= sure[code] + early[code] + open_
    ]


def durations_match_calls(scrape: Scrape) -> list[str]:
    """Check that the histogram of durations has one value for every counted call, by method; speakers have none."""
    calls = scrape.by("lingon_requests_total", "method")
    calls.pop("TranslateLive", None)
    values = scrape.by("lingon_request_duration_seconds_count", "method")
    return [
        f"{method}: {calls[method]} calls, {values[method]} durations"
        for method in sorted(calls.keys() | values.keys())
        if calls[method] != values[method]
    ]


def gauges_at_zero(scrape: Scrape) -> list[str]:
    """Check that nothing is queued, running or being answered."""
    return [f"{name} is {scrape.sum(name):g}" for name in GAUGES if scrape.sum(name) != 0]


def growth(samples: Sequence[float]) -> float:
    """Return the growth from the first to the last sample: the median of all slopes (Theil and Sen)."""
    count = len(samples)
    if count < 2:
        return math.nan
    slopes = sorted(
        (samples[right] - samples[left]) / (right - left) for left in range(count) for right in range(left + 1, count)
    )
    return slopes[len(slopes) // 2] * (count - 1)


def spread(samples: Sequence[float], trimmed: float = 0.05) -> float:
    """Return how far the largest sample is above the mean, as a share of it.

    `trimmed` is cut at either end as outliers.
    """
    ranked = sorted(samples)
    cut = int(trimmed * len(ranked))
    kept = ranked[cut : len(ranked) - cut]
    return max(kept) / (sum(kept) / len(kept)) - 1 if kept else math.nan
