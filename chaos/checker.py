"""Proves from the record of a run what was promised of it: pure functions, each returns what it found wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from chaos.history import CANCELLED, DEADLINE_EXCEEDED, KILLED, OK, UNAVAILABLE, Fate
from chaos.prometheus import Scrape

Golden = Mapping[tuple[int, str], str]
"""By beam size and text, the translation of the text alone."""

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
CROSSING = {CANCELLED, DEADLINE_EXCEEDED, KILLED}
"""Fates that a client decides by itself, while the server may be just about to answer, or has not heard yet."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request as the server's log tells it.

    time: seconds since 1970, when it ended; milliseconds: how long it took inside the server
    """

    request_id: str
    method: str
    code: str
    milliseconds: float
    time: float


def ended_once(fates: Iterable[Fate]) -> list[str]:
    """Every request has one end, every text of an answer one result; nobody's patience ends but where it was meant to.

    A client gives up by itself in the end: an answer that was lost would look like a deadline.
    """
    found, seen = [], Counter[str]()
    for fate in fates:
        seen[fate.id] += 1
        if fate.ended is None or not fate.code:
            found.append(f"{fate.id} never ended")
        elif fate.code not in CONTRACT and fate.code != KILLED:
            found.append(f"{fate.id} ended with {fate.code}, which is not in the contract")
        elif fate.ended < fate.sent:
            found.append(f"{fate.id} ended before it was sent")
        elif (fate.code, fate.deadline) == (DEADLINE_EXCEEDED, None):
            found.append(f"{fate.id} had no answer, and would have waited for any")
        elif (fate.code, fate.cancel_after) == (CANCELLED, None):
            found.append(f"{fate.id} was cancelled, and not by its client")
        places = sorted(result.index for result in fate.results)
        if fate.code == OK and places != list(range(len(fate.texts))):
            found.append(f"{fate.id} has results {places} for {len(fate.texts)} texts")
        elif len(set(places)) != len(places):
            found.append(f"{fate.id} has a text with two results: {places}")
        if fate.code == OK and fate.request_id != fate.id:
            found.append(f"{fate.id} was answered as {fate.request_id or 'nothing'}")
    return found + [f"{name} was sent {count} times" for name, count in seen.items() if count > 1]


def as_alone(fates: Iterable[Fate], golden: Golden) -> list[str]:
    """Every text that was translated is translated as it is alone; also in answers that were cut short later."""
    found = []
    for fate in fates:
        for result in fate.results:
            if result.code == OK and result.text != golden.get((fate.beam_size, fate.texts[result.index])):
                found.append(f"{fate.id} text {result.index} is not translated as it is alone")
    return found


def only(fates: Iterable[Fate], allowed: Collection[str]) -> list[str]:
    """No other codes than these, for requests and for texts."""
    found = [f"{fate.id} ended with {fate.code} {fate.reason}" for fate in fates if fate.code not in allowed]
    return found + [
        f"{fate.id} text {result.index}: {result.code}"
        for fate in fates
        for result in fate.results
        if result.code not in allowed
    ]


def paired(fates: Sequence[Fate], calls: Sequence[Call]) -> list[str]:
    """What the clients were told is what the server says it told them, request by request.

    A client that gives up may cross with the answer; one that finds nobody may never have been heard.
    """
    times = Counter(call.request_id for call in calls)
    found = [f"the server has answered {name} {count} times" for name, count in times.items() if count > 1]
    by_id = {call.request_id: call for call in calls}
    for fate in fates:
        call = by_id.pop(fate.id, None)
        if call is None:
            if fate.code not in {*CROSSING, UNAVAILABLE}:
                found.append(f"{fate.id} ended with {fate.code}, and the server knows nothing of it")
        elif call.code != fate.code and not _crossed(fate, call):
            found.append(f"{fate.id}: the client has {fate.code}, the server {call.code}")
    return found + [f"the server has answered {name}, which nobody sent" for name in by_id]


def _crossed(fate: Fate, call: Call) -> bool:
    if fate.code in CROSSING:
        return call.code in {OK, CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE}
    return fate.code == UNAVAILABLE and call.code in {OK, CANCELLED}  # the connection broke under the answer


def counted(calls: Sequence[Call], scrape: Scrape) -> list[str]:
    """The counters of calls equal the log, method by method and code by code."""
    logged = Counter((call.method, call.code) for call in calls)
    told: Counter[tuple[str, str]] = Counter()
    for (name, own), value in scrape.values.items():
        labels = dict(own)
        if name == "lingon_requests_total" and value:
            told[labels["method"], labels["code"]] = int(value)
    return [
        f"{method} {code}: {logged[method, code]} in the log, {told[method, code]} in the counter"
        for method, code in sorted(logged.keys() | told.keys())
        if logged[method, code] != told[method, code]
    ]


def counted_until(calls: Sequence[Call], scrape: Scrape) -> list[str]:
    """The counters of a scrape before the end equal the log's beginning: a call is counted, then logged, in one go."""
    until = int(scrape.sum("lingon_requests_total"))
    if until > len(calls):
        return [f"{until} calls were counted, {len(calls)} are in the log"]
    return counted(calls[:until], scrape)


def counted_as_told(fates: Sequence[Fate], calls: Sequence[Call], scrape: Scrape) -> list[str]:
    """The counters of texts equal what clients were told, code by code.

    Texts of a request refused at the door have no code of their own, and those whose client did not wait for the
    answer may have been done.
    """
    by_id = {call.request_id: call.code for call in calls}
    sure, open_ = Counter[str](), 0
    for fate in fates:
        code = by_id.get(fate.id, UNAVAILABLE)
        if code == OK and fate.code == OK:
            sure.update(result.code for result in fate.results)
        elif code == OK or (fate.method == "TranslateStream" and code != UNAVAILABLE):
            open_ += len(fate.texts)
        elif code != UNAVAILABLE:
            sure[code] += len(fate.texts)
    told = scrape.by("lingon_texts_total", "code")
    return [
        f"texts with {code}: {sure[code]} by the clients, {told[code]} in the counter"
        for code in sorted((sure.keys() | told.keys()) - {UNAVAILABLE})
        if not sure[code] <= told[code] <= sure[code] + open_
    ]


def histograms(scrape: Scrape) -> list[str]:
    """The histogram of durations has as many values as calls were counted, method by method."""
    calls = scrape.by("lingon_requests_total", "method")
    values = scrape.by("lingon_request_duration_seconds_count", "method")
    return [
        f"{method}: {calls[method]} calls, {values[method]} durations"
        for method in sorted(calls.keys() | values.keys())
        if calls[method] != values[method]
    ]


def at_rest(scrape: Scrape) -> list[str]:
    """Nothing waits, runs or is being answered."""
    return [f"{name} is {scrape.sum(name):g}" for name in GAUGES if scrape.sum(name) != 0]


def growth(samples: Sequence[float]) -> float:
    """By how much samples grow from the first to the last, robustly: the median of all slopes (Theil and Sen)."""
    count = len(samples)
    if count < 2:
        return math.nan
    slopes = sorted(
        (samples[right] - samples[left]) / (right - left) for left in range(count) for right in range(left + 1, count)
    )
    return slopes[len(slopes) // 2] * (count - 1)


def spread(samples: Sequence[float], trimmed: float = 0.05) -> float:
    """How far the largest is above the mean, without the share at either end that outliers may be; as a share of it."""
    ranked = sorted(samples)
    cut = int(trimmed * len(ranked))
    kept = ranked[cut : len(ranked) - cut]
    return max(kept) / (sum(kept) / len(kept)) - 1 if kept else math.nan
