"""Doubtful sentences of a text, and the second translator: what it is asked, and whether its answer is taken.

An answer is judged as a translation of our model is: by the guard, by the strings that it keeps, by its terms. It has
no probabilities of its own, so that our model says how likely it is: with what it has in common with our translation,
that tells a translation from a fluent text that is none. An answer that fails one of these checks, or is the same,
leaves our translation as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lingon.errors import Expired, RequestError
from lingon.segments.boundaries import Span, without_blanks_around
from lingon.segments.kept_forms import without
from lingon.segments.sentence import KeptString, Restored, SplitSentence
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.guard import Guard, Judgement, Sentence
from lingon.serving.observability.tracing import current
from lingon.serving.runtime.runner import Scored
from lingon.serving.second.answers import NotTaken, OverBudget, Rejected, Unchanged
from lingon.serving.second.choice import Reason, SecondChoice, expected_gain, faults
from lingon.serving.second.likeness import LEAST_LIKELY, least_likely, mean_likelihood, shared_grams
from lingon.serving.second.numbers import with_numbers_of
from lingon.serving.second.questions import Question
from lingon.serving.second.second_translator import SecondTranslator
from lingon.serving.translation.engine_client import EngineClient, PendingJob
from lingon.serving.translation.options import Format, ResolvedOptions
from lingon.serving.translation.plans import Part, Steps, TextPlan
from lingon.serving.translation.replies import MESSAGES, PartHypothesis, SecondOpinion
from lingon.serving.translation.scored_pairs import PairScorer
from lingon.serving.translation.steps import PartPosition, SentenceTask, TextModel
from lingon.text import normalise, to_nfc
from lingon.translation.v1 import translation_pb2 as pb


@dataclass(slots=True)
class RequestSecond:
    """The second translator for one request.

    sentences: how many more may be sent
    caller: the key of fair queuing; deadline: of the call, on the clock of `time.monotonic`
    languages: source and target, BCP-47
    """

    translator: SecondTranslator
    choice: SecondChoice
    sentences: int
    caller: str
    deadline: float | None
    languages: tuple[str, str]

    @classmethod
    def of(
        cls,
        translator: SecondTranslator | None,
        asked: pb.SecondOptions,
        caller: str,
        deadline: float | None,
        languages: tuple[str, str],
    ) -> RequestSecond | None:
        """Return the second translator for a request, or None if it must not be asked. Raises InvalidRequest."""
        choice = (translator.choice if translator is not None else SecondChoice()).within(asked)
        if translator is None or not choice.sentences or translator.hourly(caller) == 0:
            return None
        return cls(translator, choice, choice.sentences, caller, deadline, languages)

    async def ask(self, question: Question) -> str:
        """Return a translation of a sentence. Raises NotTaken."""
        if self.sentences < 1:
            raise OverBudget("the request has sent as many sentences as it may")
        self.sentences -= 1
        return await self.translator.ask(question, self.caller, self.deadline)


class _Markers(NamedTuple):
    """What the second translator reads in place of characters that stand for elements of markup.

    by_character: the marker of each of these characters; others: of other sentences, which no answer may have
    """

    by_character: dict[str, str]
    others: frozenset[str]

    @classmethod
    def of(cls, sentence: str, plan: TextPlan) -> _Markers:
        stand_ins = [chr(each) for each in plan.plain.stand_ins] if plan.plain is not None else []
        number, own = 0, dict[str, str]()
        for character in stand_ins:
            if character in sentence:
                number += 1
                while f"[[{number}]]" in sentence:
                    number += 1
                own[character] = f"[[{number}]]"
        return cls(own, frozenset(stand_ins))

    def written(self, text: str) -> str:
        """Return a text with the markers."""
        return text.translate({ord(character): marker for character, marker in self.by_character.items()})

    def read(self, answer: str) -> str:
        """Return an answer with the characters. Raises Rejected for one that has some already."""
        if not self.others.isdisjoint(answer):
            raise Rejected("the answer has a character that stands for markup")
        for character, marker in self.by_character.items():
            answer = answer.replace(marker, character)
        return answer


class SecondOpinions:
    """The second translator for the sentences of one text."""

    def __init__(
        self,
        second: RequestSecond | None,
        index: int,
        plan: TextPlan,
        options: ResolvedOptions,
        client: EngineClient,
        model: TextModel,
    ) -> None:
        """second: None if it must not be asked; index: of the text in its request."""
        self._index, self._plan, self._options, self._client, self._model = index, plan, options, client, model
        self._second = second if second is not None and _may_change(plan, options) else None
        self._alone = _parts_alone(plan) if self._second is not None else frozenset()

    def __bool__(self) -> bool:
        """Whether a sentence may be sent."""
        return bool(self._alone)

    def may_ask(self, part: int) -> bool:
        """Return whether the sentence of a part may be sent, whatever its translation is.

        Not a sentence that the model reads in several parts, one with a translation from a memory, and one that begins
        with a target prefix.
        """
        return part in self._alone

    def reason(self, part: int, judgement: Judgement) -> Reason | None:
        """Return why the translation of a part is doubtful, or None if it is not, or must not be sent."""
        if self._second is None or part not in self._alone:
            return None
        return self._second.choice.reason(judgement, self._characters(part))

    def gain(self, part: int, judgement: Judgement) -> float:
        """Return how much a better translation of a part may gain, see `expected_gain`."""
        return expected_gain(judgement, self._characters(part))

    def _characters(self, part: int) -> int:
        return len(self._plan.parts[part].text)

    async def opinion(self, part: int, found: PartHypothesis, reason: Reason) -> PartHypothesis:
        """Return the translation of a part by the second translator, or ours with the outcome.

        Raises RequestError if the request ends meanwhile.
        """
        assert self._second is not None
        try:
            with current().phase("second", self._index), self._second.translator.judging(self._second.caller):
                taken = await self._answer(self._second, part, found, reason)
        except NotTaken as kept:
            outcome = self._outcome(reason, kept.result, str(kept))
            return replace(found, second=SecondOpinion(outcome))
        outcome = self._outcome(reason, pb.SECOND_RESULT_TAKEN)
        judgement = self._judged(part, taken)
        return replace(taken, second=SecondOpinion(outcome, Judgement(judgement.flags)))

    def _outcome(self, reason: Reason, result: pb.SecondResult.ValueType, detail: str = "") -> pb.SecondOutcome:
        assert self._second is not None
        self._second.translator.on_end(reason, result)
        return pb.SecondOutcome(reason=reason, result=result, model=self._second.translator.model, detail=detail)

    async def _answer(self, second: RequestSecond, index: int, ours: PartHypothesis, reason: Reason) -> PartHypothesis:
        """Return the answer about a part. Raises NotTaken for one that is not better than ours."""
        part = self._plan.parts[index]
        markers = _Markers.of(self._plan.document.segment(part.sentence), self._plan)
        answer = markers.read(await second.ask(self._question(index, second.languages, markers)))
        kept = _kept_strings(part.steps) if part.steps is not None else []
        answer = with_numbers_of(answer, [each.written or each.text for each in kept]) if kept else normalise(answer)
        if answer == ours.text:
            raise Unchanged("the answer is the translation that there is")
        restored = Restored(answer, _kept_in(answer, kept))
        self._check_terms(part, ours, answer)
        found = await self._hypothesis(index, restored, ours)
        if wrong := faults(self._judged(index, found).flags):
            raise Rejected("; ".join(MESSAGES[flag].replace("translation", "answer") for flag in wrong))
        await self._check_likely(part, restored, None if reason == pb.SECOND_REASON_SUSPECT else ours)
        return found

    def _question(self, index: int, languages: tuple[str, str], markers: _Markers) -> Question:
        part = self._plan.parts[index]
        terms = part.terms.wanted(part.read_text) if part.terms is not None else []
        kept = _kept_strings(part.steps) if part.steps is not None else []
        return Question(
            markers.written(part.steps.text if part.steps is not None else part.text),
            *languages,
            before=self._neighbour(part.sentence - 1),
            after=self._neighbour(part.sentence + 1),
            keep=tuple(markers.written(each.written or each.text) for each in kept),
            terms=tuple((each.term.source, each.target) for each in terms if each.target),
            avoid=tuple(dict.fromkeys(word for each in terms for word in each.term.forbid)),
        )

    def _neighbour(self, sentence: int) -> str:
        document, plain = self._plan.document, self._plan.plain
        if not 0 <= sentence < len(document.segments):
            return ""
        text = document.segment(sentence)
        return normalise(text.translate(dict.fromkeys(plain.stand_ins)) if plain is not None else text)

    def _check_terms(self, part: Part, ours: PartHypothesis, answer: str) -> None:
        """Raise Rejected for an answer that lacks more terms than our translation."""
        if part.terms is None:
            return
        wanted = part.terms.wanted(part.read_text)
        missed = [len(part.terms.check(text, wanted).missed) for text in (ours.text, answer)]
        if missed[0] < missed[1]:
            raise Rejected(f"the answer lacks {missed[1]} terms, and the translation that there is {missed[0]}")

    async def _hypothesis(self, index: int, restored: Restored, ours: PartHypothesis) -> PartHypothesis:
        """Return the hypothesis of an answer, with the score of our translation."""
        part, tokenizer = self._plan.parts[index], self._model.tokenizer
        score = ours.hypothesis.score
        if part.steps is None:
            tokens = tuple(tokenizer.encode_target(restored.text))
            own = Hypothesis(tokens, (0.0,) * (len(tokens) + 1), score, finished=True)
            return PartHypothesis(own, restored.text, is_encoded=True)
        as_sent = replace(part, steps=replace(part.steps, reading=None))  # the second translator reads all characters
        place, tagged = PartPosition(self._index, index, 0), self._plan.is_tagged(part)
        task = SentenceTask(as_sent, place, self._client, self._options, self._model, tagged=tagged, follow_up=True)
        found = await task.with_translation(restored)
        return replace(found, hypothesis=replace(found.hypothesis, score=score))

    def _judged(self, index: int, found: PartHypothesis) -> Judgement:
        """Return the judgement of the guard about an answer, without a confidence: it has no probabilities."""
        read = self._read(self._plan.parts[index], found)
        return Judgement() if read is None else self._guard.judge(read)

    @property
    def _guard(self) -> Guard:
        return self._model.guarding.guard

    def _read(self, part: Part, found: PartHypothesis | Restored) -> Sentence | None:
        """Return a sentence and an answer without the strings that are kept, or None if nothing else is in them."""
        tokenizer = self._model.tokenizer
        restored = found if isinstance(found, Restored) else found.restored
        if part.steps is None or restored is None:
            source, target = part.read_text, found.text
        else:
            source = to_nfc(without_blanks_around(without(part.steps.text, part.steps.spans)))
            target = without(restored.text, restored.kept)
        if not source:
            return None
        ids = tokenizer.encode_target(normalise(target))
        return Sentence(source, target, tokenizer.unframed(part.source_ids), ids)

    async def _check_likely(self, part: Part, restored: Restored, ours: PartHypothesis | None) -> None:
        """Raise Rejected for an answer that is too unlikely to be a translation of its sentence.

        ours: our translation, None if it is suspect: then it says nothing about others
        """
        read, own = self._read(part, restored), self._read(part, ours) if ours is not None else None
        if read is None or self._second is None:
            return
        rejected = self._second.translator.rejected(self._second.caller)
        targets = [normalise(each.target) for each in (read, own) if each is not None]
        scorer = PairScorer(self._client, self._model.tokenizer, self._model.limits, self._submit)
        try:
            pairs = await scorer.score(normalise(read.source), targets, attention=False)
        except Expired:
            raise
        except RequestError:  # our translation is complete, and stays
            raise Rejected("the answer could not be compared with its source") from None
        if not pairs:  # the model cannot read them
            return
        likely, *of_ours = [pair.found.log_probs.tolist() for pair in pairs]
        least = least_likely(of_ours[0], shared_grams(*targets), rejected) if of_ours else LEAST_LIKELY
        if (mean := mean_likelihood(likely)) < least:
            raise Rejected(
                f"our model gives the tokens of the answer a mean log-probability of {mean:.1f}, less than {least:.1f}"
            )

    async def _submit(self, jobs: Sequence[PendingJob[Scored]]) -> None:
        with current().trace_jobs((self._index, each.job, each.outcome) for each in jobs):
            await self._client.submit_when_possible(jobs)


def _may_change(plan: TextPlan, options: ResolvedOptions) -> bool:
    """Return whether another translator may translate sentences of a text.

    Not with options that restrict, draw or rank translations of the model, and not where nothing is judged.
    """
    if options.text.guard == pb.GUARD_POLICY_OFF or options.text.format is Format.PIECES:
        return False
    searched = options.rules is None and options.job.sampling is None and options.num_hypotheses == 1
    return searched and not (options.alternatives or options.coverage_penalty or plan.soft_prefix)


def _parts_alone(plan: TextPlan) -> frozenset[int]:
    """Return the parts that are whole sentences and have neither a translation nor a target prefix."""
    return frozenset(
        indices[0]
        for indices in plan.parts_of_sentences()
        if len(indices) == 1 and plan.parts[indices[0]].given is None and not (plan.prefix and indices[0] == 0)
    )


def _kept_strings(steps: Steps) -> list[KeptString]:
    """Return the strings of a sentence that its translation keeps; a small number may become a word."""
    kept = SplitSentence.of(steps.text, steps.spans, steps.custom).kept
    return [each for each in kept if not each.is_figure]


def _kept_in(answer: str, kept: Sequence[KeptString]) -> tuple[Span, ...]:
    """Return where the strings are in an answer, in order. Raises Rejected if one is not there as often as it is kept.

    The longest ones are looked for first, because one may be a part of another.
    """
    spans, seen = list[Span](), answer
    for each in sorted(kept, key=lambda own: -len(own.text)):
        string = each.text if each.text in seen else each.written
        begin = seen.find(string) if string else -1
        if begin < 0:
            raise Rejected("the answer lacks a string that is kept")
        spans.append((begin, begin + len(string)))
        seen = seen[:begin] + "\0" * len(string) + seen[begin + len(string) :]
    if any(each.text in seen for each in kept if re.search(r"\W", each.text)):
        raise Rejected("the answer has a string that is kept more often than its sentence")
    return tuple(sorted(spans))
