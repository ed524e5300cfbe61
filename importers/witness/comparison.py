"""What another toolkit generates, compared with what the imported model generates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lingon.errors import ParityError
from lingon.export.gates.translations.quality import NEAR_TIE
from lingon.export.gates.translations.searches import BeamSettings
from lingon.importers.files.pieces import Numbering
from lingon.importers.source import ForeignModel
from lingon.text import BOS, EOS, FORBIDDEN
from lingon.training.checkpoint import Checkpoint
from lingon.training.models.interface import AnyModel
from lingon.training.search import Hypothesis, SearchSettings, normalised_score, translate

SENTENCES = 40  # that are compared


class Toolkit(Protocol):
    """A model as another toolkit loads it; ids are those of the files, the rows of a numbering."""

    name: str

    def searches(self, forced: Sequence[int]) -> Sequence[BeamSettings]:
        """Return the searches that equal ours. forced: ids that are read after the start."""

    def is_comparable(self, source: Sequence[int], ours: Hypothesis, settings: SearchSettings) -> bool:
        """Whether the toolkit can read a source and its search can find this translation."""

    def generate(
        self,
        source: Sequence[int],
        never: Sequence[int],
        settings: SearchSettings,
        most: int,
        forced: Sequence[int] = (),
    ) -> list[int]:
        """Return the generated ids, without those of the start and the end; `most` of them at most, the end counted.

        forced: ids that are read after the start
        never: ids that are not generated
        """


@dataclass(slots=True)
class _Counts:
    """Numbers of texts: with the same tokens, with others that score no better, and that are not compared."""

    same: int = 0
    no_better: int = 0
    left_out: int = 0


def compare_tokens(
    toolkit: Toolkit, checkpoint: Checkpoint, source: ForeignModel, texts: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each search of the toolkit.

    texts: normalised; the first SENTENCES are compared

    Raises ParityError if a translation of the toolkit scores better than ours, or if one of greedy search differs at a
    token that scores worse than ours by more than NEAR_TIE.
    """
    texts, forced = texts[:SENTENCES], checkpoint.tokenizer.languages.forced
    for beam_size, penalty in toolkit.searches(forced):
        settings = SearchSettings(beam_size=beam_size, length_penalty=penalty, forced=forced)
        label = f"{toolkit.name}: beam size {beam_size}, length penalty {penalty:g}"
        counts = _count(checkpoint, source, toolkit, texts, settings, label)
        others = f", {counts.no_better} score no better" if counts.no_better else ""
        left_out = f"; {counts.left_out} are left out, which it cannot translate so" if counts.left_out else ""
        compared = len(texts) - counts.left_out
        yield f"{label}: tokens of {counts.same} of {compared} texts are the same{others}{left_out}"


def _count(
    checkpoint: Checkpoint,
    source: ForeignModel,
    toolkit: Toolkit,
    texts: Sequence[str],
    settings: SearchSettings,
    label: str,
) -> _Counts:
    """Compare the translations of texts; raise ParityError if another one is better."""
    model, rows, counts = checkpoint.model, source.target.rows, _Counts()
    silent, ours = never_generated(source.target), new_ids(source.target)
    sources = [checkpoint.tokenizer.encode_source(text) for text in texts]
    for text, ids, (best, *_) in zip(texts, sources, translate(model, sources, settings), strict=True):
        if not toolkit.is_comparable(ids, best, settings):
            counts.left_out += 1
            continue
        most, forced = settings.max_length(len(ids), model.settings.max_positions), settings.forced
        theirs = [source.source.rows[each] for each in ids]
        foreign = toolkit.generate(theirs, silent, settings, most, [rows[each] for each in forced])
        if foreign == [rows[each] for each in best.tokens]:
            counts.same += 1
            continue
        tokens = [ours[each] for each in foreign]
        labels = [*tokens, EOS] if len(tokens) < most else tokens
        log_probs = _log_probs(model, ids, labels, settings)
        score = normalised_score(float(log_probs.gather(1, torch.tensor(labels)[:, None]).sum()), len(labels), settings)
        if not _is_near(best, labels, log_probs, score, settings):
            raise ParityError(
                f"{label}: {text[:60]!r} has other tokens, of score {score:.4f}; ours is {best.score:.4f}"
            )
        counts.no_better += 1
    return counts


def _is_near(
    ours: Hypothesis, labels: Sequence[int], log_probs: Tensor, score: float, settings: SearchSettings
) -> bool:
    """Whether rounding explains that the labels of a toolkit are others, or they score no better.

    log_probs: (labels, vocab), by our model

    In greedy search the first token that differs decides: what follows may score as it likes.
    """
    if settings.beam_size > 1:
        return score <= ours.score + NEAR_TIE
    mine = [*ours.tokens, EOS] if ours.finished else ours.tokens
    place = next(place for place, pair in enumerate(zip(mine, labels, strict=False)) if pair[0] != pair[1])
    return float(log_probs[place, mine[place]] - log_probs[place, labels[place]]) <= NEAR_TIE


@torch.inference_mode()
def _log_probs(model: AnyModel, ids: Sequence[int], labels: Sequence[int], settings: SearchSettings) -> Tensor:
    """Return the log-probabilities (labels, vocab) of a translation, the end token counted."""
    given = torch.tensor([[BOS, *settings.forced, *labels[:-1]]])
    logits = model(torch.tensor([list(ids)]), torch.tensor([len(ids)]), given)[:, len(settings.forced) :]
    return model.log_probs(logits)[0]


def new_ids(numbering: Numbering) -> dict[int, int]:
    """Return the id in Lingon of each id of the checkpoint that may be generated."""
    never = {*FORBIDDEN, *numbering.never}
    return {row: new for new, row in enumerate(numbering.rows) if new not in never}


def never_generated(numbering: Numbering) -> list[int]:
    """Return the ids of the checkpoint that are never generated."""
    return sorted(set(numbering.rows) - new_ids(numbering).keys())
