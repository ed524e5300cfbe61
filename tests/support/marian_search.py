"""The beam search of Marian over the logits of a model of Lingon, for comparison with Marian's engine.

It is written after src/translator/beam_search.cpp and history.h of Marian. A translation that ends leaves its beam, so
that the beam gets narrower, and the search goes on until no beam is left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from lingon.importers.source import ForeignModel
from lingon.text import BOS, EOS, PAD, UNK
from lingon.training.models.interface import AnyModel, select_rows

NOT_OF_MARIAN = [PAD, BOS]  # the row of zeros


@torch.inference_mode()
def marian_beam(
    model: AnyModel,
    source: ForeignModel,
    ids: Sequence[int],
    beam_size: int,
    *,
    candidates: Collection[int] | None = None,
    factor: float = 2.0,
) -> list[int]:
    """Return the best translation in tokens, without the end token; scores are divided by the length.

    candidates: target tokens of the shortlist; None for all
    factor: bound of a translation in lengths of its source, the end tokens counted
    """
    others = [] if candidates is None else sorted(set(range(len(source.target.rows))) - {*candidates, UNK})
    memory = model.encode(torch.tensor([list(ids)]), torch.tensor([len(ids)]))
    live: list[tuple[list[int], float]] = [([], 0.0)]
    ended: list[tuple[float, list[int]]] = []
    for length in range(1, int(factor * len(ids)) + 1):
        rows = torch.zeros(len(live), dtype=torch.long)
        given = torch.tensor([[BOS, *tokens] for tokens, _ in live])
        logits = model.decode(given, select_rows(memory, rows))[:, -1].float()
        logits[:, [*NOT_OF_MARIAN, *others]] = -torch.inf
        scores = logits.log_softmax(dim=-1)
        scores[:, [UNK, *source.target.never]] = -torch.inf  # unlike in Lingon they have a share of the softmax
        scores += torch.tensor([score for _, score in live])[:, None]
        width = beam_size if length == 1 else len(live)
        best = scores.flatten().topk(width)
        found = []
        for index, score in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            parent, token = divmod(index, scores.size(1))
            found.append(([*live[parent][0], token], score))
        is_last = length == int(factor * len(ids))
        ended += [(score / length, tokens) for tokens, score in found if tokens[-1] == EOS or is_last]
        live = [each for each in found if each[0][-1] != EOS]
        if not live:
            break
    _, tokens = max(ended, key=lambda each: each[0])
    return [each for each in tokens if each != EOS]


def marian_candidates(source: ForeignModel, ids: Sequence[int], frequent: int) -> list[int]:
    """Return the tokens of the shortlist of one text: Marian fills them up to a multiple of 8 with frequent ones.

    frequent: the number of first rows that every text may use
    """
    assert source.shortlist is not None
    by_row = {row: new for new, row in enumerate(source.target.rows) if new not in NOT_OF_MARIAN}
    rows = {source.target.rows[each] for each in source.shortlist.select(ids)} | {source.target.rows[UNK]}
    for row in range(frequent, max(by_row) + 1):
        if len(rows) % 8 == 0:
            break
        rows.add(row)
    return sorted(by_row[row] for row in rows)
