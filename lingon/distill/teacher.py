"""A teacher translates the shards of a distillation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from lingon.cli.backend import ListTranslator
from lingon.cli.lines import in_order
from lingon.cli.output import Advance
from lingon.client.options import TranslateOptions
from lingon.client.results import TextResult
from lingon.distill.shards import Shards, TeacherText, TeacherTranslation, fault_of
from lingon.errors import LingonError

BATCH = 64  # texts of a request
IN_FLIGHT = 4  # requests; enough to keep the rows of an engine in use


@dataclass(frozen=True, slots=True)
class Teacher:
    """A translator with the same options and the same model throughout."""

    translator: ListTranslator
    options: TranslateOptions

    def model_for(self, text: TeacherText) -> str:
        """Return the name and version of the model, which is known from a reply; text: any text."""
        result = self.translator.translate([text.source], **self.options)[0]
        if not result.model:
            raise LingonError(f"the first text was not translated: {result.error}")
        return f"{result.model}/{result.version}"

    def translate(self, shards: Shards, model: str, advance: Advance) -> None:
        """Translate the shards that are missing. Requests of the next shard begin before the last one has ended.

        model: see model_for. The run ends with an error if a server replaces it
        """
        results: dict[int, TeacherTranslation] = {}
        with closing(in_order(self._batches(shards), self._answer, IN_FLIGHT)) as answers:
            for (number, positions), found in answers:
                texts = shards.texts_of(number)
                for position, result in zip(positions, found, strict=True):
                    results[position] = _translated(result, model)
                advance(len(positions), sum(_bytes(texts[position]) for position in positions))
                if len(results) == len(texts):
                    shards.write(number, [results[position] for position in range(len(texts))])
                    results = {}

    def _batches(self, shards: Shards) -> Iterator[tuple[tuple[int, list[int]], Sequence[TeacherText]]]:
        """Yield the requests: number of the shard with the positions of the texts in it, and the texts, the longest
        first.

        Texts of one length are encoded together, and a shard ends without a long text that is decoded alone.
        """
        for number in shards.missing():
            texts = shards.texts_of(number)
            order = sorted(range(len(texts)), key=lambda position: -len(texts[position].source))
            for first in range(0, len(order), BATCH):
                positions = order[first : first + BATCH]
                yield (number, positions), [texts[position] for position in positions]

    def _answer(
        self, batch: tuple[tuple[int, list[int]], Sequence[TeacherText]]
    ) -> tuple[tuple[int, list[int]], list[TextResult]]:
        where, texts = batch
        return where, self.translator.translate([text.source for text in texts], **self.options)


def missing_bytes(shards: Shards) -> int:
    """Return the bytes of the texts that are not translated yet."""
    return sum(_bytes(text) for number in shards.missing() for text in shards.texts_of(number))


def _translated(result: TextResult, model: str) -> TeacherTranslation:
    answered = f"{result.model}/{result.version}"
    if result.model and answered != model:
        raise LingonError(f"the teacher is {answered} now; this run was begun with {model}")
    if (fault := fault_of(result)) is not None:
        return TeacherTranslation(fault=fault)
    return TeacherTranslation(tuple(each.text for each in result.translations))


def _bytes(text: TeacherText) -> int:
    return len(text.source.encode(errors="replace")) + 1
