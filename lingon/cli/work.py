"""The two kinds of work that verbs do line by line: translating, scoring."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lingon.cli.backend import Answers
from lingon.cli.format import Show, n_best_lines, plain_line, score_json, score_line, translation_json
from lingon.cli.line_loop import is_empty, spread
from lingon.client.messages import ScoreOptions, TranslateOptions
from lingon.client.results import ScoreResult, TextResult
from lingon.text import normalise


@dataclass(frozen=True, slots=True)
class Translating:
    """Lines to their translations; a blank line stays one, and so does one that cannot be translated."""

    options: TranslateOptions
    show: Show
    as_json: bool

    def answer(self, client: Answers, numbers: list[int], items: list[str]) -> list[TextResult]:
        """The results of lines; the seed grows with the line, so that no batch draws the numbers of another."""
        options = self.options.copy()
        sampling = options.get("sampling")
        if sampling is not None and numbers[0] > 1:
            options["sampling"] = replace(sampling, seed=((sampling.seed or 0) + numbers[0] - 1) % 2**64)
        blank = [not line.strip() for line in items]
        return spread(items, blank, lambda full: client.translate(full, **options), TextResult())

    def render(self, number: int, item: str, result: TextResult) -> str:
        """One line, or of an n-best list as many as there are translations."""
        if self.as_json:
            return translation_json(number, item, TextResult() if is_empty(result) else result)
        if (self.options.get("num_hypotheses") or 1) > 1:
            return n_best_lines(number, item, result, self.show)
        return plain_line(item, result.translations[0], self.show) if result.translations else ""


@dataclass(frozen=True, slots=True)
class Scoring:
    """Pairs to the log-probability of the target."""

    options: ScoreOptions
    show: Show
    as_json: bool

    def answer(self, client: Answers, numbers: list[int], items: list[tuple[str, str]]) -> list[ScoreResult]:
        """The results of pairs."""
        blank = [not any(normalise(text) for text in pair) for pair in items]
        return spread(items, blank, lambda full: client.score(full, **self.options), ScoreResult())

    def render(self, number: int, item: tuple[str, str], result: ScoreResult) -> str:
        """One line."""
        if self.as_json:
            return score_json(number, item, result)
        return score_line(item, result, self.show) if result.tokens else ""
