"""Answers the requests of the text layer with a bundle in this process, those of all sentences together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lingon.segments.protection.requests import Align, Answer, Link, Request, Restored, Steps, Translate
from lingon.serving.in_process import LocalTranslator
from lingon.serving.translation.planning.text_options import WHOLE
from lingon.translation.v1 import translation_pb2 as pb

Item = TypeVar("Item")
Reply = TypeVar("Reply")
TEXTS = 64  # in one request of the service


@dataclass
class Answers:
    """A translator, and how often it was asked.

    beam_size: of the search; as many hypotheses are asked for
    """

    translator: LocalTranslator
    beam_size: int
    translated: int = 0
    aligned: int = 0
    _known: dict[Request, Answer] = field(default_factory=dict)

    def run(self, sentences: Sequence[Steps]) -> list[Restored]:
        """Return what each generator returns; in a round, each that is not done has one request."""
        results: dict[int, Restored] = {}
        answers: dict[int, Answer | None] = dict.fromkeys(range(len(sentences)))
        while answers:
            requests: dict[int, Request] = {}
            for place, answer in answers.items():
                try:
                    requests[place] = next(sentences[place]) if answer is None else sentences[place].send(answer)
                except StopIteration as done:
                    results[place] = done.value
            self._answer(set(requests.values()) - set(self._known))
            answers = {place: self._known[request] for place, request in requests.items()}
        return [results[place] for place in range(len(sentences))]

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Return the best translations of texts without any protection."""
        return [found[0] for found in _in_chunks([Translate(text) for text in texts], self._translate)]

    def _answer(self, requests: set[Request]) -> None:
        texts = sorted((each for each in requests if isinstance(each, Translate)), key=lambda each: len(each.text))
        pairs = [each for each in requests if isinstance(each, Align)]
        self.translated += len(texts)
        self.aligned += len(pairs)
        self._known.update(dict(zip(texts, _in_chunks(texts, self._translate), strict=True)))
        self._known.update(dict(zip(pairs, _in_chunks(pairs, self._align), strict=True)))

    def _translate(self, requests: Sequence[Translate]) -> list[Sequence[str]]:
        options = pb.DecodingOptions(beam_size=self.beam_size, num_hypotheses=self.beam_size)
        response = self.translator.translate(
            pb.TranslateRequest(
                texts=[each.text for each in requests],
                target_prefixes=[each.prefix for each in requests],
                options=options,
                text=WHOLE,
            )
        )
        return [[hypothesis.text for hypothesis in result.hypotheses] or [""] for result in response.results]

    def _align(self, requests: Sequence[Align]) -> list[Sequence[Link]]:
        pairs = [pb.ScorePair(source=each.source, target=each.target) for each in requests]
        response = self.translator.score(pb.ScoreRequest(pairs=pairs, return_alignment=True))
        return [
            [((link.source.begin, link.source.end), (link.target.begin, link.target.end)) for link in result.alignment]
            for result in response.results
        ]


def _in_chunks(items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Reply]]) -> list[Reply]:
    found: list[Reply] = []
    for begin in range(0, len(items), TEXTS):
        found += work(items[begin : begin + TEXTS])
    return found
