"""Translations by the engine that several gates read: each is searched for once.

The gates of scores, of tokens and of quality compare translations of the same held-out sentences. A translation does
not depend on the sentences that are decoded with it, so that one search serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lingon.export.gates.translations.decode import engine_search
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.runtime.runner import Runner

BeamSettings = tuple[int, float]
"""Beam size and length penalty."""


@dataclass(slots=True)
class Searches:
    """The hypotheses of one precision for held-out sources, as far as a gate has asked for them.

    runners: by precision; that of `name` is asked for when there is something to search for
    sources: ids as the tokenizer frames them
    forced: see `decode_all`
    """

    runners: Mapping[str, Runner]
    name: str
    sources: Sequence[tuple[int, ...]]
    forced: tuple[int, ...] = ()
    shortlist: bool = False
    _known: dict[tuple[BeamSettings, int], list[tuple[Hypothesis, ...]]] = field(default_factory=dict)

    def hypotheses(self, search: BeamSettings, count: int, number: int = 1) -> list[tuple[Hypothesis, ...]]:
        """Return at least `number` hypotheses for each of the first `count` sources, the best first."""
        beam_size, penalty = search
        if penalty:  # the search ends when beam_size hypotheses have ended, however many of them are asked for
            number = beam_size
        known = self._known.setdefault((search, number), [])
        if len(known) < count:
            more = self.sources[len(known) : count]
            known += engine_search(
                self.runners[self.name],
                more,
                *search,
                shortlist=self.shortlist,
                num_hypotheses=number,
                forced=self.forced,
            )
        return known[:count]

    def best(self, search: BeamSettings, count: int) -> list[Hypothesis]:
        """Return the best hypothesis for each of the first `count` sources."""
        return [best for best, *_ in self.hypotheses(search, count)]
