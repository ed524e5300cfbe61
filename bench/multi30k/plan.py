"""What is measured: language pairs, test sets, ways to translate, and the figures of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lingon.bench.moses_bleu import MosesTokens
from lingon.training.config import Config

PAIRS = ("en-de", "en-fr")
SETS = ("test2016", "test2017", "testcoco2017")
LENGTH_PENALTY = 1.0
"""Of the score log-probability / length^penalty, the default of fairseq."""

PUBLISHED = {
    "en-de": {"test2016": 41.0, "test2017": 33.4, "testcoco2017": 29.9},
    "en-fr": {"test2016": 61.8, "test2017": 53.5, "testcoco2017": 44.5},
}
"""BLEU of the text-only Transformer-Tiny, Wu et al. (2021), table 1."""


@dataclass(frozen=True, slots=True)
class System:
    """A way to translate with a run.

    checkpoints: how many of the last ones are averaged
    """

    checkpoints: int
    beam_size: int

    def name(self, checkpoints: int) -> str:
        """The name in the tables; checkpoints: how many the run has for the average."""
        weights = "last checkpoint" if self.checkpoints == 1 else f"average of {checkpoints}"
        return f"{weights}, {'greedy' if self.beam_size == 1 else f'beam {self.beam_size}'}"


PAPER = System(checkpoints=10, beam_size=5)
SYSTEMS = (PAPER, System(checkpoints=10, beam_size=1), System(checkpoints=1, beam_size=5))


def paper_tokens(language: str) -> MosesTokens:
    """The tokens that the paper scores.

    Its repository reports 12,103 reference tokens of test2016 in German, which is the number in lower case; with the
    case of the text it is 12,102.
    """
    return MosesTokens(language=language, lower_case=True, normalise=True)


def cased_tokens(language: str) -> MosesTokens:
    """The same tokens with the case of the text."""
    return MosesTokens(language=language, normalise=True)


def test_files(config: Config, pair: str, test_set: str) -> tuple[Path, Path]:
    """Source and reference of a test set, which are in the folder of the validation set."""
    folder = config.data.corpora[-1].files()[0].parent
    source, target = (folder / f"multi30k.{pair}.{test_set}.{language}.gz" for language in pair.split("-"))
    return source, target
