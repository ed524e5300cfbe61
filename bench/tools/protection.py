"""How protected strings and sentences in capitals are translated by a bundle, in this process.

    python -m lingon.bench.tools.protection models/en-de tests/data/tatoeba.en tests/data/tatoeba.de

Prints how many placeholders are not as often in the translation as in the text, the share of each means to keep them,
and chrF with placeholders masked on both sides. The last table has chrF of the sentences in capitals.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from lingon.bench.options import ToolResults
from lingon.bench.results_file import keep, show
from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.files import read_parallel
from lingon.scoring import score
from lingon.segments.capitals import names_of
from lingon.segments.protection import find_protected
from lingon.segments.sentence import (
    Align,
    Means,
    Restored,
    SentenceAnswer,
    SentenceRequest,
    SentenceSteps,
    SpanLink,
    TranslateStep,
)
from lingon.segments.steps import translate_sentence
from lingon.serving.in_process import LocalTranslator
from lingon.serving.translation.options import WHOLE
from lingon.translation.v1 import translation_pb2 as pb

Item = TypeVar("Item")
Reply = TypeVar("Reply")
TEXTS = 64  # in one request of the service


@dataclass
class Answers:
    """A translator, and how often it was asked.

    beam_size: of the search, and the number of requested hypotheses
    """

    translator: LocalTranslator
    beam_size: int
    translated: int = 0
    aligned: int = 0
    _known: dict[SentenceRequest, SentenceAnswer] = field(default_factory=dict)

    def run(self, sentences: Sequence[SentenceSteps]) -> list[Restored]:
        """Run all generators to their end, and return their results. In a round each has one request."""
        results: dict[int, Restored] = {}
        answers: dict[int, SentenceAnswer | None] = dict.fromkeys(range(len(sentences)))
        while answers:
            requests: dict[int, SentenceRequest] = {}
            for index, answer in answers.items():
                try:
                    requests[index] = next(sentences[index]) if answer is None else sentences[index].send(answer)
                except StopIteration as done:
                    results[index] = done.value
            self._answer(set(requests.values()) - set(self._known))
            answers = {index: self._known[request] for index, request in requests.items()}
        return [results[index] for index in range(len(sentences))]

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Return the best translations of texts without any protection."""
        return [found[0] for found in _in_chunks([TranslateStep(text) for text in texts], self._translate)]

    def _answer(self, requests: set[SentenceRequest]) -> None:
        texts = sorted((each for each in requests if isinstance(each, TranslateStep)), key=lambda each: len(each.text))
        pairs = [each for each in requests if isinstance(each, Align)]
        self.translated += len(texts)
        self.aligned += len(pairs)
        self._known.update(dict(zip(texts, _in_chunks(texts, self._translate), strict=True)))
        self._known.update(dict(zip(pairs, _in_chunks(pairs, self._align), strict=True)))

    def _translate(self, requests: Sequence[TranslateStep]) -> list[Sequence[str]]:
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

    def _align(self, requests: Sequence[Align]) -> list[Sequence[SpanLink]]:
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


def names_in(bundle: Bundle) -> dict[str, str]:
    """Return the words that the bundle's vocabulary writes with capitals."""
    pieces = bundle.tokenizer().source
    return names_of((pieces.id_to_piece(token), pieces.get_score(token)) for token in range(pieces.get_piece_size()))


def measure_capitals(answers: Answers, pairs: Sequence[tuple[str, str]], names: Mapping[str, str]) -> dict[str, Any]:
    """Return chrF of the sentences in normal case and in capitals, all scored in capitals."""
    sources, references = [source for source, _ in pairs], [target.upper() for _, target in pairs]
    upper = [source.upper() for source in sources]

    def chrf(outputs: Sequence[str]) -> float:
        return round(score([output.upper() for output in outputs], references).chrf, 2)

    def layered(known: Mapping[str, str]) -> float:
        return chrf([found.text for found in answers.run([translate_sentence(text, (), (), known) for text in upper])])

    return {
        "sentences": len(pairs),
        "chrf_normal_case": chrf(answers.translate(sources)),
        "chrf_capitals": chrf(answers.translate(upper)),
        "chrf_without_names": layered({}),
        "chrf_with_names": layered(names),
    }


KINDS = (
    "https://example.org/a?b=1",
    "user@example.org",
    "/usr/share/doc.txt",
    "{name}",
    "{{name}}",
    "${name}",
    "%s",
    "%(name)s",
    '<x id="1"/>',
    "__1__",
    ":name",
    "47110815",
)
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence with placeholders and its reference, and the same with a name instead of them.

    reference: None if a string was put where no translator would put it
    """

    text: str
    strings: tuple[str, ...]
    reference: str | None = None
    name: str = ""

    @property
    def named(self) -> Pair:
        """The sentence and its reference with the name."""
        return self.masked(self.text), self.masked(self.reference or "")

    def masked(self, text: str) -> str:
        """Return a text with its strings replaced by the name."""
        for string in self.strings:
            text = text.replace(string, self.name)
        return text


def usable_pairs(pairs: Sequence[Pair], name: str) -> list[Pair]:
    """Return the pairs of four words and more with the name once on both sides, in the source as a whole word."""
    word = re.compile(rf"\b{re.escape(name)}\b(?!['’-])")
    return [
        pair
        for pair in pairs
        if pair[0].count(name) == pair[1].count(name) == 1 and word.search(pair[0]) and len(pair[0].split()) > 3
    ]


def in_place_of_the_name(pair: Pair, words: Sequence[str], strings: Sequence[str], _: random.Random) -> Case:
    """Return the sentence with the first word replaced by the first string."""
    source, target = (side.replace(words[0], strings[0]) for side in pair)
    return Case(source, (strings[0],), target, words[0])


def at_the_end(pair: Pair, words: Sequence[str], strings: Sequence[str], _: random.Random) -> Case:
    """Return the sentence with a string before its last full stop, compared with the second word there."""
    source, target = (re.sub(r"\W*$", lambda end: f" {strings[0]}{end[0]}", side, count=1) for side in pair)
    return Case(source, (strings[0],), target, words[1])


def between_words(pair: Pair, words: Sequence[str], strings: Sequence[str], chance: random.Random) -> Case:
    """Return the sentence with strings between its words."""
    text = pair[0].split()
    for string in strings:
        text.insert(chance.randrange(1, len(text)), string)
    return Case(" ".join(text), tuple(strings))


Make = Callable[[Pair, Sequence[str], Sequence[str], random.Random], Case]
POSITIONS: tuple[tuple[str, Make, int], ...] = (
    ("a name's place", in_place_of_the_name, 1),
    ("the end", at_the_end, 1),
    ("between words", between_words, 1),
    ("between words", between_words, 2),
    ("between words", between_words, 3),
    ("between words", between_words, 4),
)


def measure_placeholders(
    answers: Answers, pairs: Sequence[Pair], words: Sequence[str], position: tuple[str, Make, int]
) -> dict[str, Any]:
    """Return the shares of the means, the number of sentences that lost a string, and scores, of all kinds.

    words: self-translating ones, of which the first is the name in the pairs
    """
    place, make, count = position
    chance = random.Random(0)
    cases = [
        make(pair, words, [KINDS[(kind + more) % len(KINDS)] for more in range(count)], chance)
        for pair in pairs
        for kind in range(len(KINDS))
    ]
    results = answers.run([translate_sentence(case.text, find_protected(case.text), words, {}) for case in cases])
    used = Counter(result.means for result in results)
    shares = {means.name.lower(): round(100 * used[means] / len(cases), 2) for means in Means}
    row = {"place": place, "strings": count, "sentences": len(cases), "lost": sum(map(_lost, cases, results)), **shares}
    return {**row, **_scores(answers, cases, results)}


def _lost(case: Case, result: Restored) -> bool:
    return any(result.text.count(string) != case.text.count(string) for string in case.strings)


def _scores(answers: Answers, cases: Sequence[Case], results: Sequence[Restored]) -> dict[str, float]:
    """Return chrF of the results with the strings replaced by the name, and of the sentences that have the name."""
    if any(case.reference is None for case in cases):
        return {}
    masked = [case.masked(result.text) for case, result in zip(cases, results, strict=True)]
    named = sorted({case.named for case in cases})
    plain = answers.translate([source for source, _ in named])
    return {
        "chrf": round(score(masked, [case.named[1] for case in cases]).chrf, 2),
        "chrf_of_names": round(score(plain, [target for _, target in named]).chrf, 2),
    }


def main(
    model: Annotated[Path, typer.Argument(help="A bundle.")],
    source: Annotated[Path, typer.Argument(help="Sentences, one a line, plain or packed.")],
    target: Annotated[Path, typer.Argument(help="Their translations, line by line.")],
    words: Annotated[str, typer.Option(help="Words that translate to themselves, with commas; the surest first.")],
    sentences: Annotated[int, typer.Option(min=1, help="Sentences of each measurement.")] = 1000,
    beam_size: Annotated[int, typer.Option(min=1, help="Of the search; as many hypotheses are looked at.")] = 4,
    results: ToolResults = None,
) -> None:
    """Print the figures of all positions of placeholders and of capitals, and save them if there is a folder."""
    pairs = list(read_parallel(source, target))
    listed = words.split(",")
    named = usable_pairs(pairs, listed[0])
    if len(listed) < 2 or not named:
        raise SettingsError(f"--words needs two words, of which the first is once in sentences of {source}: {words}")
    with LocalTranslator(model) as translator:
        answers = Answers(translator, beam_size)
        rows = [
            measure_placeholders(answers, named[:: max(len(named) // sentences, 1)][:sentences], listed, position)
            for position in POSITIONS
        ]
        show(rows)
        some = pairs[:: max(len(pairs) // sentences, 1)][:sentences]
        upper = measure_capitals(answers, some, names_in(open_bundle(model)))
    show([upper])
    keep("protection", [*rows, upper], results, words=listed, beam_size=beam_size)


if __name__ == "__main__":
    typer.run(main)
