"""Greedy translations by an imported model, each of which is searched for once."""

from __future__ import annotations

from collections.abc import Sequence

from lingon.training.checkpoint import Checkpoint
from lingon.training.search import Hypothesis, SearchSettings, translate

Ids = tuple[int, ...]


def translate_once(checkpoint: Checkpoint, texts: Sequence[str], known: dict[Ids, Hypothesis]) -> list[Hypothesis]:
    """Return the greedy translation of each text.

    texts: normalised
    known: translations by this model, by the ids of their sources; those that are not there are added
    """
    sources = [tuple(checkpoint.tokenizer.encode_source(text)) for text in texts]
    new = [source for source in dict.fromkeys(sources) if source not in known]
    settings = SearchSettings(forced=checkpoint.tokenizer.languages.forced)
    known.update(zip(new, (best for best, *_ in translate(checkpoint.model, new, settings)), strict=True))
    return [known[source] for source in sources]
