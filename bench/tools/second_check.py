"""How well the check of likelihood tells answers of a second translator: what it rejects and what it takes.

    python -m lingon.bench.tools.second_check models/en-de tatoeba.en tatoeba.de news.en news.de

A good answer is a person's translation of a sentence. A lie is a person's translation of another sentence, of the same
length within three characters where there is one, as the stand-in of `second_server` gives it. The other checks of
answers are left out, and so are answers that are our translation. The first row is a check by a fixed least likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from lingon import Model
from lingon.bench.options import ToolResults
from lingon.bench.results_file import Row, keep, show
from lingon.bench.second_server import References
from lingon.bundle.store import find_model, open_bundle
from lingon.errors import SettingsError
from lingon.files import read_parallel
from lingon.serving.second.likeness import LEAST_LIKELY, LESS_LIKELY, least_likely, mean_likelihood, shared_grams

FIFTH = 0.2  # of the sentences, those with the least confidence, are sent by a usual threshold


class Answer(NamedTuple):
    """An answer about a sentence, and our translation.

    likely: mean log-probability of its tokens, see `mean_likelihood`; ours: log-probabilities of our translation
    shared: see `shared_grams`; confidence: of our translation, 0 to 1
    """

    likely: float
    ours: Sequence[float]
    shared: float
    confidence: float

    def passes(self, rejected: int) -> bool:
        """Return whether the check takes it; rejected: answers that were rejected in a row before it."""
        return self.likely >= least_likely(self.ours, self.shared, rejected)


def answers(model: Model, pairs: Sequence[tuple[str, str]]) -> tuple[list[Answer], list[Answer]]:
    """Return good answers about sentences, and lies. pairs: sentences and their translations by people."""
    references = References(pairs)
    found = model.translate([source for source, _ in pairs], beam_size=4, return_sentences=True)
    ours = [
        (source, each.text, each.confidence)
        for (source, _), each in zip(pairs, found, strict=True)
        if each.confidence is not None and len(each.sentences) == 1
    ]
    sources = [source for source, _, _ in ours]
    scored = _log_probs(model, [(source, text) for source, text, _ in ours])
    kinds = ([references.translation(source) or "" for source in sources], [references.other(each) for each in sources])
    good, lies = (
        [
            Answer(mean_likelihood(own), of_ours, shared_grams(answer, text), confidence)
            for answer, own, of_ours, (_, text, confidence) in zip(
                given, _log_probs(model, list(zip(sources, given, strict=True))), scored, ours, strict=True
            )
            if own and of_ours and answer != text
        ]
        for given in kinds
    )
    return good, lies


def _log_probs(model: Model, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
    """Return the log-probabilities of the tokens of each pair; none of a pair that the model cannot read."""
    return [[token.log_prob for token in each.tokens] for each in model.score(pairs)]


def rows(good: Sequence[Answer], lies: Sequence[Answer]) -> list[Row]:
    """Return the percentages of good answers that are rejected and of lies that are taken, by check."""
    checks: dict[str, Callable[[Answer], bool]] = {
        f"at least {LEAST_LIKELY:g}": lambda each: each.likely >= LEAST_LIKELY
    }
    checks |= {f"after {rejected} rejected": _check_after(rejected) for rejected in range(len(LESS_LIKELY))}
    least = float(np.quantile([each.confidence for each in good], FIFTH))
    doubtful = [each for each in good if each.confidence <= least], [each for each in lies if each.confidence <= least]
    return [
        {
            "check": name,
            "good_rejected": _percent([not passes(each) for each in good]),
            "lies_taken": _percent([passes(each) for each in lies]),
            "doubtful_good_rejected": _percent([not passes(each) for each in doubtful[0]]),
            "doubtful_lies_taken": _percent([passes(each) for each in doubtful[1]]),
        }
        for name, passes in checks.items()
    ]


def _check_after(rejected: int) -> Callable[[Answer], bool]:
    return lambda each: each.passes(rejected)


def _percent(found: Sequence[bool]) -> float:
    return round(100 * sum(found) / max(len(found), 1), 2)


def main(
    bundle: Annotated[Path, typer.Argument(help="A bundle with confidence: models/NAME or models/NAME/VERSION.")],
    texts: Annotated[
        list[Path], typer.Argument(help="Sentences, one a line, and their translations by people; may be repeated.")
    ],
    count: Annotated[int, typer.Option(min=10, help="Pairs of each text that are read, at most.")] = 2000,
    results: ToolResults = None,
) -> None:
    """Print what the check rejects and takes, and save it if there is a folder for it."""
    if len(texts) % 2:
        raise SettingsError(f"texts must be pairs of files, got {len(texts)} files")
    found: list[Row] = []
    with Model(bundle, device="cpu") as model:
        for source, target in zip(texts[::2], texts[1::2], strict=True):
            pairs = [(one.strip(), other.strip()) for one, other in read_parallel(source, target)][:count]
            good, lies = answers(model, [pair for pair in pairs if all(pair)])
            if not good or not lies:
                raise SettingsError(f"{source}: has no sentence with a confidence")
            found += [{"text": source.name, "good": len(good), "lies": len(lies), **row} for row in rows(good, lies)]
    show(found)
    keep(f"second-check-{open_bundle(find_model(bundle)).manifest.name}", found, results)


if __name__ == "__main__":
    typer.run(main)
