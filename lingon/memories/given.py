"""The segments that come with a request, looked up as those of a translation memory are."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b

from lingon.memories.keys import EXACT, IN_CONTEXT, NO_CONTEXT, comparable, context_key
from lingon.memories.memory import MOST_CELLS, MOST_COMPARED, Match, score_of
from lingon.memories.segment import Segment


class GivenMemory:
    """A `Memory` of few segments, without files."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        """segments: checked. Of those with the same source and neighbours the last one counts."""
        own = dict[tuple[str, str, str], Segment]()
        for each in segments:
            key = (each.source, each.before, each.after)
            own.pop(key, None)  # it counts where it comes last
            own[key] = each
        self._segments = defaultdict[str, list[Segment]](list)  # by their comparable sources
        digest = blake2b(digest_size=16)
        for each in own.values():
            self._segments[comparable(each.source)].append(each)
            content = each.message().SerializeToString(deterministic=True)
            digest.update(len(content).to_bytes(4, "big") + content)
        for same in self._segments.values():
            same.reverse()
            same.sort(key=lambda each: -each.changed)
        self._forms = sorted(self._segments, key=lambda form: (len(form), form))
        self.digest = digest.hexdigest()
        """See `Memory`."""

    def find(self, text: str, before: str = "", after: str = "", *, min_score: int = 70, most: int = 1) -> list[Match]:
        """See `Memory.find`."""
        form = comparable(text)
        if not form:
            return []
        context = context_key(before, after)

        def score(segment: Segment) -> int:
            in_context = context != NO_CONTEXT and context_key(segment.before, segment.after) == context
            return IN_CONTEXT if in_context else EXACT

        matches = [Match(each, score(each)) for each in self._segments.get(form, ())]
        found = sorted(matches, key=lambda each: (-each.score, each.segment.source != text))[:most]
        if len(found) < most and min_score < EXACT:
            found += self._fuzzy(form, min_score, most - len(found))
        return found

    def _fuzzy(self, form: str, min_score: int, most: int) -> list[Match]:
        length = len(form)
        begin = bisect_left(self._forms, -(-length * min_score // 100), key=len)
        end = bisect_left(self._forms, length * 100 // min_score + 1, key=len)
        compared = max(1, min(MOST_COMPARED, MOST_CELLS // length**2))
        nearest = sorted(self._forms[begin:end], key=lambda other: abs(len(other) - length))[:compared]
        scored = [(score_of(form, other, min_score), other) for other in nearest if other != form]
        scored = sorted((each for each in scored if each[0] >= min_score), reverse=True)
        return [Match(self._segments[other][0], score) for score, other in scored[:most]]
