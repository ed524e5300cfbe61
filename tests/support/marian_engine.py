"""The beam search of Marian over the logits of a model of Lingon, for comparison with Marian's engine.

It is written after src/translator/beam_search.cpp and history.h of Marian. A translation that ends leaves its beam, so
that the beam gets narrower, and the search continues until no beam is left.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lingon.importers.foreign_model import ForeignModel
from lingon.importers.toolkits.marian import MarianEngine
from lingon.text import BOS, EOS, PAD, UNK
from lingon.training.models.interface import AnyModel, select_rows
from tests.support.foreign_clients import NODE_CLIENT
from tests.support.marian_models import FORMS, LINES, written
from tests.support.repository import ROOT

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
    """Return the best translation in tokens, without the end token. Scores are divided by the length.

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


KEPT = ROOT / "tests" / "data" / "marian_engine.json"
KEPT_LINES = LINES[3::8]
BEAMS = 6  # lines whose translations by beam search are kept


@dataclass(frozen=True, slots=True)
class KeptTranslations:
    """The translations of KEPT_LINES by form: of greedy search, and the first BEAMS of beam search with four beams."""

    greedy: dict[str, list[str]]
    beam: dict[str, list[str]]


def read_kept() -> KeptTranslations:
    """Read the file."""
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    assert found["lines"] == KEPT_LINES, "other lines than those that were translated: see the top of this file"
    return KeptTranslations(found["greedy"], found["beam 4"])


def main() -> None:
    """Write the file."""
    with MarianEngine(NODE_CLIENT) as engine, tempfile.TemporaryDirectory() as room:
        found: dict[str, dict[str, list[str]]] = {"greedy": {}, "beam 4": {}}
        for number, (name, form) in enumerate(FORMS.items()):
            _, files = written(form, Path(room) / str(number))
            for search, beam_size, texts in (("greedy", 1, KEPT_LINES), ("beam 4", 4, KEPT_LINES[:BEAMS])):
                engine.load(files.model, files.vocabularies, beam_size=beam_size, length_factor=2.0)
                found[search][name] = engine.translate(texts)
        written_by = f"bergamot-translator {engine.version} (npm)"
    kept = {"engine": written_by, "made by": "python -m tests.support.marian_engine", "lines": KEPT_LINES, **found}
    KEPT.write_text(f"{json.dumps(kept, ensure_ascii=False, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
