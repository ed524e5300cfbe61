"""One plain sentence, from its request to its reply by one job: most calls of a program with a model in its process.

The plan of any text, and the tasks of any request on an event loop, take longer than the decoding by a small model. A
sentence that needs none of it is translated without them. The reply is that of `Translator.translate`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from lingon.bundle.manifest import Limits
from lingon.errors import EngineFault, RequestError
from lingon.segments.characters import Alphabet
from lingon.segments.layout import TextLayout
from lingon.serving.decoding.job import DecodeJob, Hypotheses
from lingon.serving.translation.engine_client import ValidUtf8
from lingon.serving.translation.options import ResolvedOptions
from lingon.serving.translation.planner import is_simple, needs_steps
from lingon.serving.translation.plans import Part, TextPlan, max_output, text_of
from lingon.serving.translation.replies import Judged, PartHypothesis, part_judgement, text_error, text_result
from lingon.serving.translation.steps import Guarding
from lingon.text import Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb

PLAIN_FIELDS = frozenset(("texts", "model", "source_language_code", "target_language_code", "options", "terms"))
"""The fields of a request that may be set. All others, also those of later versions, need more than one job."""


def has_one_plain_text(request: pb.TranslateRequest) -> bool:
    """Return whether a request has one text, and sets nothing but its model, its languages, its search and terms."""
    return len(request.texts) == 1 and PLAIN_FIELDS.issuperset(field.name for field, _ in request.ListFields())


def is_plain_search(options: ResolvedOptions) -> bool:
    """Return whether the options ask for the best translation alone, without words or alignments."""
    asks_more = options.return_alignment or options.coverage_penalty or options.alternatives
    return options.rules is None and options.num_hypotheses == 1 and not asks_more


@dataclass(frozen=True, slots=True)
class SentenceModel:
    """The parts of a model that one sentence needs."""

    limits: Limits
    tokenizer: Tokenizer
    alphabet: Alphabet
    guarding: Guarding
    valid_utf8: ValidUtf8

    def read(self, text: str, options: ResolvedOptions) -> OneSentence | None:
        """Return a text that is certainly one sentence which the model reads unchanged, or None for another one.

        options: a plain search of a plain text
        """
        if not is_simple(text):
            return None
        sentence = text.strip(" ")
        read = normalise(sentence)
        if not self.alphabet.knows(read) or needs_steps(sentence, (), options.text):
            return None
        ids = self.tokenizer.encode_source(read)
        if len(ids) > self.limits.max_source_tokens:
            return None
        begin = len(text) - len(text.lstrip(" "))
        layout = TextLayout(text, ((begin, begin + len(sentence)),))
        return OneSentence(self, TextPlan(layout, (Part(read, 0, tuple(ids)),)), options)


@dataclass(frozen=True, slots=True)
class OneSentence:
    """A sentence that one job translates; options: of its request."""

    model: SentenceModel
    plan: TextPlan
    options: ResolvedOptions

    def job(self, deadline: float | None, on_done: Callable[[Hypotheses | RequestError], None]) -> DecodeJob:
        """Return its job; deadline, on_done: see DecodeJob."""
        forced = self.model.tokenizer.languages.forced
        longest = max_output(self.model.limits, self.plan, 0, self.options.max_output_tokens)
        return DecodeJob(
            source_ids=self.plan.parts[0].source_ids,
            options=self.options.job_options(longest, stream=0),
            on_done=on_done,
            prefix=forced,
            hidden=len(forced),
            deadline=deadline,
        )

    def result(self, job: DecodeJob, outcome: Hypotheses | EngineFault) -> pb.TextResult | None:
        """Return the result of the outcome of its job, or None if it takes more: it is no valid UTF-8, or so suspicious
        that it is decoded again. It lacks no number, because a simple text has none.
        """
        if isinstance(outcome, EngineFault):
            return text_error(outcome)
        model, plan = self.model, self.plan
        if len(outcome) != 1 or model.valid_utf8.again(job, outcome) is not None:
            return None
        found = PartHypothesis(outcome[0], text_of(model.tokenizer, outcome[0].tokens))
        guard, judged = model.guarding.guard, None
        if self.options.text.guard == pb.GUARD_POLICY_RETRY:
            judgement = part_judgement(plan, 0, found, guard, model.tokenizer)
            if judgement.flags and judgement.degenerate:
                return None
            judged = Judged([judgement])
        return _result_of(text_result(plan, [[found]], self.options, model.tokenizer, guard, judged))


def _result_of(steps: Generator[None, None, pb.TextResult]) -> pb.TextResult:
    """Return the result of a generator that yields between parts, of which there is one."""
    try:
        next(steps)
    except StopIteration as end:
        result: pb.TextResult = end.value
        return result
    raise AssertionError("a text of one part has nothing between its parts")
