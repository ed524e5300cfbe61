"""The choice of a route over two models where no model translates a pair of languages. Plain data, without I/O.

A route without a model for non-commercial use only comes first, then the route with the best published scores, then
the one whose pivot language is named first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lingon.bundle.manifest import Origin

METRICS = ("comet", "chrf", "bleu")  # ends of the names of scores, the one that agrees best with people first
NON_COMMERCIAL = re.compile(r"\bnc\b|non-?commercial", re.IGNORECASE)
"""In the name of a licence, such as CC-BY-NC-4.0."""

Hops = Sequence[Origin | None]
"""What publishers say of the models of a route, None for a model that was not imported."""


def best_route(routes: Sequence[Hops]) -> int:
    """Return the index of the best of one or more routes, which are in the order of preference.

    Scores of different test sets or metrics cannot be compared. The compared one is that which most routes have for all
    their models, of several the one with the first metric of METRICS. A route is as good as its worse model.
    """
    compared = _compared_score(routes)
    return max(range(len(routes)), key=lambda index: (*_rank(routes[index], compared), -index))


def is_non_commercial(licence: str) -> bool:
    """Return whether a licence forbids commercial use, as far as its name says so."""
    return NON_COMMERCIAL.search(licence) is not None


def _rank(hops: Hops, compared: str) -> tuple[bool, float, float]:
    """Return a key that is higher for a better route: its licences, its worse score, and the sum of its scores."""
    allowed = not any(hop is not None and is_non_commercial(hop.licence) for hop in hops)
    scores = _scores(hops, compared)
    return allowed, min(scores, default=float("-inf")), sum(scores)


def _scores(hops: Hops, name: str) -> list[float]:
    """Return a score of each model of a route, or none if a model lacks it."""
    found = [hop.scores.get(name) if hop is not None else None for hop in hops]
    scores = [score for score in found if score is not None]
    return scores if len(scores) == len(found) else []


def _compared_score(routes: Sequence[Hops]) -> str:
    """Return the name of the score by which routes are compared, empty if no route has one for all its models."""
    names = {name for hops in routes for hop in hops if hop is not None for name in hop.scores}
    counted = {name: sum(bool(_scores(hops, name)) for hops in routes) for name in names}
    known = [name for name in names if counted[name] and name.rpartition("-")[2] in METRICS]
    return min(known, key=lambda name: (-counted[name], METRICS.index(name.rpartition("-")[2]), name), default="")
