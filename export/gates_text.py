"""The gates that compare translations of the engine with each other: tokens, scores, quality. They need no torch."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from lingon.bundle.golden import Golden, alignment_text
from lingon.bundle.store import Bundle
from lingon.errors import ParityError, QueueFull, RequestError
from lingon.export.differences import LOG_PROBS, Differences, Tolerance, finite, log_softmax
from lingon.scoring import score
from lingon.serving.decoding.job import DecodeJob, Hypothesis, Job, Options, ScoreJob
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.models.loading import links, translate
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape, Buffers, Runner, Scored, Step, width_for
from lingon.text import BOS, EOS, PAD, LanguageTokens
from lingon.translation.v1 import translation_pb2 as pb

# Decoding and scoring of many sentences by an engine, from one thread.

SEARCHED_ROWS = 64  # hypotheses that are decoded together. With a large vocabulary, more take much memory for logits
Answer = TypeVar("Answer")
SearchOutcome = tuple[Hypothesis, ...] | RequestError
TokenPair = tuple[tuple[int, ...], tuple[int, ...]]
"""Source ids as the tokenizer frames them, target ids without BOS and EOS."""


def search_name(beam_size: int) -> str:
    """Return the name of a search in reports."""
    return "greedy" if beam_size == 1 else f"beam {beam_size}"


def decode_all(
    engine: Engine, sources: Iterable[tuple[int, ...]], options: list[Options], forced: tuple[int, ...] = ()
) -> list[SearchOutcome]:
    """Decode every source (framed token ids) and return the outcomes in order; options has one for each.

    forced: target tokens that every translation begins with, and that are not part of it
    """
    job = partial(DecodeJob, prefix=forced, hidden=len(forced))
    return _run_all(
        engine, [partial(job, source_ids=source, options=each) for source, each in zip(sources, options, strict=True)]
    )


def engine_search(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    beam_size: int,
    length_penalty: float,
    *,
    shortlist: bool = False,
    num_hypotheses: int = 1,
    forced: tuple[int, ...] = (),
) -> list[tuple[Hypothesis, ...]]:
    """Return the hypotheses that the engine finds for each source. Raise ParityError if it fails on one.

    They have the attention of their steps, if the graphs give it.

    forced: see `decode_all`
    """
    options = [
        Options(
            beam_size=beam_size,
            num_hypotheses=num_hypotheses,
            length_penalty=length_penalty,
            max_output_tokens=runner.limits.max_output(len(source)),
            shortlist=shortlist,
            attention=True,
        )
        for source in sources
    ]
    with _started(runner, max(SEARCHED_ROWS, beam_size)) as engine:
        return _successful(decode_all(engine, sources, options, forced))


def engine_search_alone(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    beam_size: int,
    length_penalty: float,
    forced: tuple[int, ...] = (),
) -> list[tuple[Hypothesis, ...]]:
    """Return what engine_search returns, but decode each source before the next one is submitted."""
    return [engine_search(runner, [source], beam_size, length_penalty, forced=forced)[0] for source in sources]


def engine_scores(runner: Runner, pairs: Sequence[TokenPair], forced: tuple[int, ...] = ()) -> list[Scored]:
    """Return the scores that the engine gives to each pair, without `forced`. Raise ParityError if it fails on one."""
    tokens = LanguageTokens(forced=forced)
    with _started(runner, SEARCHED_ROWS) as engine:
        jobs = [partial(ScoreJob, source_ids=source, target_ids=(*forced, *target)) for source, target in pairs]
        return [each.without(tokens) for each in _successful(_run_all(engine, jobs))]


def _run_all(engine: Engine, jobs: Sequence[Callable[..., Job]]) -> list[Any]:
    """Run every job and return the outcomes in order. A job is made with on_done.

    Jobs are submitted until the queue is full, then one more after each outcome.
    """
    done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    outcomes: dict[int, Any] = {}
    for index, make in enumerate(jobs):
        job = make(on_done=_put_outcome(done, index))
        while not _try_submit(engine, job):
            finished, outcome = done.get()
            outcomes[finished] = outcome
    while len(outcomes) < len(jobs):
        finished, outcome = done.get()
        outcomes[finished] = outcome
    return [outcomes[index] for index in range(len(jobs))]


def _put_outcome(done: queue.SimpleQueue[tuple[int, Any]], index: int) -> Callable[[Any], None]:
    return lambda outcome: done.put((index, outcome))


def _try_submit(engine: Engine, job: Job) -> bool:
    try:
        engine.submit([job])
    except QueueFull:
        return False
    return True


@contextmanager
def _started(runner: Runner, max_rows: int) -> Iterator[Engine]:
    engine = Engine(runner, EngineLimits(max_rows=max_rows))
    engine.start()
    try:
        yield engine
    finally:
        engine.stop(timeout=0)


def _successful(outcomes: Sequence[Answer | RequestError]) -> list[Answer]:
    """Return the outcomes. Raise ParityError if one is an error."""
    for outcome in outcomes:
        if isinstance(outcome, RequestError):
            raise ParityError(f"the engine failed on a sentence: {outcome}")
    return [outcome for outcome in outcomes if not isinstance(outcome, RequestError)]


# Translations by the engine that several gates read: each is searched for once.
# The gates of scores, of tokens and of quality compare translations of the same held-out sentences. A translation does
# not depend on the sentences that are decoded with it, so that one search serves all of them.

BeamSettings = tuple[int, float]
"""Beam size and length penalty."""


@dataclass(slots=True)
class Searches:
    """The hypotheses of one precision for held-out sources, as far as a gate has asked for them.

    runners: by precision. That of `name` is asked for when there is something to search for
    sources: ids as the tokenizer frames them
    forced: see `decode_all`
    """

    runners: Mapping[str, Runner]
    name: str
    sources: Sequence[tuple[int, ...]]
    forced: tuple[int, ...] = ()
    shortlist: bool = False
    _known: dict[tuple[BeamSettings, int], list[tuple[Hypothesis, ...]]] = field(default_factory=dict)

    def hypotheses(self, search: BeamSettings, count: int, number: int = 1) -> list[tuple[Hypothesis, ...]]:
        """Return at least `number` hypotheses for each of the first `count` sources, the best first.

        Those of greedy search are searched for once for all length penalties: it finds the same tokens with each. Their
        scores have no penalty.
        """
        beam_size, penalty = search = (1, 0.0) if search[0] == 1 else search
        count = min(count, len(self.sources))
        if penalty:  # the search ends when beam_size hypotheses have ended, however many of them are asked for
            number = beam_size
        known = self._known.setdefault((search, number), [])
        if len(known) < count:
            more = self.sources[len(known) : count]
            known += engine_search(
                self.runners[self.name],
                more,
                *search,
                shortlist=self.shortlist,
                num_hypotheses=number,
                forced=self.forced,
            )
        return known[:count]

    def best(self, search: BeamSettings, count: int) -> list[Hypothesis]:
        """Return the best hypothesis for each of the first `count` sources."""
        return [best for best, *_ in self.hypotheses(search, count)]


# The gates that compare translations with those of the fp32 graphs: tokens of exact precisions, BLEU of lossy parts.

MAX_BLEU_LOSS, MAX_CHRF_LOSS = 0.2, 0.3  # points
LEAST_LIKE_BLEU, LEAST_LIKE_CHRF = 85.0, 93.0  # of lossy translations against those of fp32
LEAST_WORDS = 4  # of a sentence, on average, for a bound of BLEU: it counts runs of 4 words
NEAR_TIE = 1e-4  # difference of two scores that two implementations may rank differently
MAX_NEAR_TIES = 0.005  # share of the sentences
MIN_IDENTICAL = 0.75  # share of the sentences, of lossy arithmetic; it was 0.93 for int8 of models/en-de


@dataclass(frozen=True, slots=True)
class TokenAgreement:
    """The number of sentences with identical tokens, and how far the log-probabilities of these tokens differ.

    near_ties: the sentences, from 1, that differ by a near tie
    """

    sentences: int
    identical: int
    near_ties: tuple[int, ...]
    largest: float
    mean: float

    def __str__(self) -> str:
        ties = f", {len(self.near_ties)} near ties" if self.near_ties else ""
        return (
            f"{self.identical} of {self.sentences} sentences identical{ties}, log-probabilities differ by up to "
            f"{self.largest:.1e}"
        )


@dataclass(frozen=True, slots=True)
class ExactSearch:
    """What the fp32 graphs find for some sources with a search.

    sources: ids as the tokenizer frames them
    found: the best hypothesis of each source
    """

    runner: Runner
    sources: Sequence[tuple[int, ...]]
    found: Sequence[Hypothesis]
    beam_size: int
    length_penalty: float
    forced: tuple[int, ...] = ()  # see `decode_all`

    def is_near_tie(self, index: int, other: Hypothesis) -> bool:
        """Return whether another hypothesis for a source differs by a decision whose candidates fp32 has within
        NEAR_TIE.

        In beam search the decision is the ranking of the two hypotheses, in greedy search the first token that differs.
        """
        longest = self.runner.limits.max_target_tokens - 1 - len(self.forced)  # the scorer reads BOS, too
        pair = [self.found[index], other]
        given = [(self.sources[index], each.tokens[:longest]) for each in pair]
        scored = engine_scores(self.runner, given, self.forced)
        one, two = (each.log_probs[: len(tie.log_probs)] for each, tie in zip(scored, pair, strict=True))
        if self.beam_size > 1:
            return _near(*(float(each.sum()) / len(each) ** self.length_penalty for each in (one, two)))
        labels = zip(*([*each.tokens, EOS][: len(each.log_probs)] for each in pair), strict=False)
        position = next((position for position, (mine, theirs) in enumerate(labels) if mine != theirs), None)
        return (
            position is not None
            and position < min(len(one), len(two))
            and _near(float(one[position]), float(two[position]))
        )


def check_agreement(
    precision: str, found: Sequence[Hypothesis], expected: ExactSearch, *, exact: bool
) -> TokenAgreement:
    """Compare the best hypotheses of a precision, token by token, with those of the fp32 graphs.

    exact: whether all must be identical but for near ties. Otherwise MIN_IDENTICAL of them must

    Raises ParityError if too few are identical, or the log-probabilities of identical ones differ too much.
    """
    label = f"{precision}: beam size {expected.beam_size}"
    different, log_probs = [], Differences()
    for index, (mine, theirs) in enumerate(zip(found, expected.found, strict=True)):
        if (mine.tokens, mine.finished) != (theirs.tokens, theirs.finished):
            different.append(index)
            continue
        mine_finite = finite(np.array(mine.log_probs), f"{label}: log-probabilities of translations")
        log_probs.add(np.abs(mine_finite - np.array(theirs.log_probs)))
    if exact:
        _check_near_ties(label, found, expected, different)
    elif len(found) - len(different) < MIN_IDENTICAL * len(found):
        raise ParityError(
            f"{label}: {len(found) - len(different)} of {len(found)} sentences have the tokens of fp32, at least "
            f"{MIN_IDENTICAL:.0%} must"
        )
    log_probs.check(f"{label}: log-probabilities of translations", LOG_PROBS[precision])
    ties = tuple(index + 1 for index in different) if exact else ()
    return TokenAgreement(len(found), len(found) - len(different), ties, log_probs.largest, log_probs.mean)


def check_quality(
    what: str, found: Sequence[str], exact: Sequence[str], references: Sequence[str], language: str = ""
) -> dict[str, Any]:
    """Compare translations with those of the fp32 graphs without a shortlist and return the scores of both.

    what: the precision, for the message of the ParityError if the scores are too much lower, or the translations are
        not like those of fp32: against references that fit neither, both have a score of about 0
    language: of the translations, for the tokens of BLEU
    """
    lossy, fp32 = score(found, references, language), score(exact, references, language)
    if fp32.bleu - lossy.bleu > MAX_BLEU_LOSS or fp32.chrf - lossy.chrf > MAX_CHRF_LOSS:
        raise ParityError(
            f"{what}: BLEU {lossy.bleu:.2f} and chrF {lossy.chrf:.2f} are not within {MAX_BLEU_LOSS} and "
            f"{MAX_CHRF_LOSS} of fp32's {fp32.bleu:.2f} and {fp32.chrf:.2f}"
        )
    return check_likeness(what, found, exact, language) | {
        "bleu": lossy.bleu,
        "chrf": lossy.chrf,
        "fp32_bleu": fp32.bleu,
        "fp32_chrf": fp32.chrf,
        "signature": lossy.bleu_signature,
    }


def check_likeness(what: str, found: Sequence[str], exact: Sequence[str], language: str = "") -> dict[str, Any]:
    """Compare translations with those of the fp32 graphs as their references and return the scores.

    what: the precision, for the message of the ParityError if the scores are too low

    Sentences of few words, as in languages that write no blanks between words, have no bound of BLEU: it may be 0 even
    if all are identical.
    """
    likeness = score(found, exact, language)
    wordy = sum(len(text.split()) for text in exact) >= LEAST_WORDS * len(exact)
    if (wordy and likeness.bleu < LEAST_LIKE_BLEU) or likeness.chrf < LEAST_LIKE_CHRF:
        raise ParityError(
            f"{what}: against the translations of fp32, BLEU {likeness.bleu:.2f} and chrF {likeness.chrf:.2f} are not "
            f"at least {LEAST_LIKE_BLEU:g} and {LEAST_LIKE_CHRF:g}"
        )
    return {
        "sentences": len(exact),
        "identical": sum(one == other for one, other in zip(found, exact, strict=True)),
        "bleu_against_fp32": likeness.bleu,
        "chrf_against_fp32": likeness.chrf,
    }


def max_near_ties(sentences: int) -> int:
    """Return how many sentences may be near ties: one at least, because one of few sentences may be one by chance."""
    return max(int(MAX_NEAR_TIES * sentences), 1)


def _check_near_ties(label: str, found: Sequence[Hypothesis], expected: ExactSearch, different: Sequence[int]) -> None:
    """Raise ParityError if one of the sentences that differ is no near tie, or if there are too many."""
    for index in different:
        if not expected.is_near_tie(index, found[index]):
            raise ParityError(f"{label}: sentence {index + 1} of {len(found)} has other tokens than in fp32")
    if len(different) > max_near_ties(len(found)):
        raise ParityError(
            f"{label}: {len(different)} of {len(found)} sentences are near ties, at most {max_near_ties(len(found))} "
            f"may be"
        )


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= NEAR_TIE


# The score gate: `Score` gives the engine's own translations the log-probabilities with which it found them, and looks
# where the search looked. A translation comes from the encoder and the decoder step, its score from the scorer, and its
# alignment from either. This gate compares the two in the arithmetic of a precision, so that its tolerance is close.

SENTENCES = 100  # first held-out sentences
TOLERANCE = {  # of the log-probability of a token, by precision
    "fp32": Tolerance(largest=1e-4),
    "fp32-cuda": Tolerance(largest=1e-4),
    "fp16": Tolerance(largest=5e-2),
    "fp16-native": Tolerance(largest=5e-2),
    "int8": Tolerance(largest=0.25, mean=1e-3),  # a value near the middle of two steps may be rounded to either
    "int8-native": Tolerance(largest=0.25, mean=1e-3),
    "fp32-native": Tolerance(largest=1e-4),
}
ATTENTION_TOLERANCE = {  # of the part of its weight that a token gives to other source tokens, by precision
    "fp32": Tolerance(largest=1e-4),
    "fp32-native": Tolerance(largest=1e-4),
    "int8": Tolerance(largest=0.25, mean=1e-3),
    "int8-native": Tolerance(largest=0.25, mean=1e-3),
}
"""Graphs for cards are not among them, because their steps do not say where they look."""
SHORTLIST_TOLERANCE = Tolerance(largest=1e-4)  # of steps with the shortlist, whose products are the same
SHORTLIST_BATCH = 8  # sentences whose pieces are united


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """The number of translations and of tokens, and the differences of their log-probabilities.

    elsewhere: the largest part of its weight that a token gives to other source tokens in the search than in the
        scorer; None if the steps of the search do not say where they look
    """

    translations: int
    tokens: int
    largest: float
    mean: float
    elsewhere: float | None = None

    def __str__(self) -> str:
        scored = f"{self.tokens:,} tokens of {self.translations:,} translations scored"
        looked = "" if self.elsewhere is None else f", of attention up to {self.elsewhere:.1e}"
        return f"{scored}, differences up to {self.largest:.1e}{looked}"


def check_scores(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    beam_size: int,
    length_penalty: float,
    precision: str,
    forced: tuple[int, ...] = (),
    found: Sequence[tuple[Hypothesis, ...]] | None = None,
) -> ScoreReport:
    """Score all hypotheses that the engine finds for the framed sources and compare, token by token.

    Their attention is compared as well, if the steps of the graphs give it.

    forced: see `decode_all`
    found: these hypotheses, if the engine has found them already

    Raises ParityError if log-probabilities or attention differ too much.
    """
    if found is None:
        found = engine_search(runner, sources, beam_size, length_penalty, num_hypotheses=beam_size, forced=forced)
    pairs = [(source, each) for source, hypotheses in zip(sources, found, strict=True) for each in hypotheses]
    longest = runner.limits.max_target_tokens - 1 - len(forced)  # the scorer reads BOS, too
    scored = engine_scores(runner, [(source, each.tokens[:longest]) for source, each in pairs], forced)
    what, differences = f"{precision}: beam size {beam_size}", Differences()
    for (_, hypothesis), each in zip(pairs, scored, strict=True):
        differences.add(_differences(hypothesis, finite(each.log_probs, f"scores in {precision}"), longest))
    differences.check(f"{what}: Score and search", TOLERANCE[precision])
    elsewhere = None
    if runner.steps_attend:
        looked = [(hypothesis, each) for (_, hypothesis), each in zip(pairs, scored, strict=True)]
        elsewhere = _check_attention(looked, precision, f"{what}: attention in Score and search", forced).largest
    return ScoreReport(len(pairs), differences.count, differences.largest, differences.mean, elsewhere)


def _check_attention(
    pairs: Sequence[tuple[Hypothesis, Scored]], precision: str, what: str, forced: tuple[int, ...] = ()
) -> Differences:
    """Check that the search looked where the scorer looks, and return which part of their weight tokens give elsewhere.

    pairs: hypotheses, and the scores of their first tokens; what: begins the message of an error

    Raises ParityError.
    """
    languages, differences = LanguageTokens(forced=forced), Differences()
    for hypothesis, scored in pairs:
        own = hypothesis.attention_without(languages)
        if own is None:
            raise ParityError(f"{what}: the search kept none, although its steps say where they look")
        rows = min(len(own), len(scored.attention))
        differences.add(np.abs(finite(own[:rows], what) - scored.attention[:rows]).sum(axis=1) / 2)
    differences.check(what, ATTENTION_TOLERANCE[precision])
    return differences


def _differences(hypothesis: Hypothesis, scored: np.ndarray, longest: int) -> np.ndarray:
    """Return the differences of the tokens that have both log-probabilities.

    scored: (target_length + 1), the end token last, which an unfinished hypothesis does not have
    """
    found = np.array(hypothesis.log_probs[: longest + hypothesis.finished])
    differences: np.ndarray = np.abs(found - scored[: len(found)])
    return differences


def check_shortlist_steps(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    precision: str,
    found: Sequence[Hypothesis] | None = None,
) -> Differences:
    """Check that a step with the shortlist is a step over the pieces of its sentence alone, in batches of sentences.

    found: what greedy search with the shortlist finds for each source, if the engine has searched already

    The expected log-probabilities are those of the full decoder, normalised over the pieces; the expected attention is
    that of the scorer. Raises ParityError if a step differs, or offers a piece that is not on the shortlist of its
    sentence.
    """
    if found is None:
        found = [best for best, *_ in engine_search(runner, sources, 1, 0.0, shortlist=True)]
    differences = Differences()
    for first in range(0, len(sources), SHORTLIST_BATCH):
        batch, best = sources[first : first + SHORTLIST_BATCH], found[first : first + SHORTLIST_BATCH]
        targets = [each.tokens[: runner.limits.max_target_tokens - 1] for each in best]
        if runner.steps_attend:
            scored = engine_scores(runner, [*zip(batch, targets, strict=True)])
            looked = [*zip(best, scored, strict=True)]
            _check_attention(looked, precision, f"{precision}: attention with the shortlist and of the scorer")
        _compare_shortlist_steps(runner, batch, targets, differences, precision)
    differences.check(f"{precision}: log-probabilities of steps with and without shortlist", SHORTLIST_TOLERANCE)
    return differences


def _compare_shortlist_steps(
    runner: Runner,
    sources: Sequence[tuple[int, ...]],
    targets: Sequence[tuple[int, ...]],
    differences: Differences,
    precision: str,
) -> None:
    """Compare all steps of translations. Two beams of each sentence read the same, which gives four candidates."""
    assert runner.shortlist is not None
    pieces = [runner.shortlist.select(source) for source in sources]
    lengths = np.array([len(source) for source in sources])
    ids = np.array([[*source, *[PAD] * (int(lengths.max()) - len(source))] for source in sources])
    encoded = runner.encode(ids, lengths)
    steps = max(map(len, targets)) + 1
    shape = BatchShape(len(sources), 2, width_for(int(lengths.max())), steps)
    full, short = runner.open(shape), runner.open(shape, shortlist=True)
    for slot in range(len(sources)):
        full.place(slot, encoded, slot)
        short.place(slot, encoded, slot, pieces[slot])
    for step in range(steps):
        read = [[BOS, *target][min(step, len(target))] for target in targets]
        logits = _step(full, read, step, logits=True).logits
        found = _step(short, read, step, logits=False)
        assert logits is not None
        for row in range(shape.rows):
            allowed = pieces[row // 2]
            offered, log_probs = found.candidate_ids[row], found.candidate_log_probs[row]
            if not np.isin(offered, allowed).all():
                raise ParityError(f"{precision}: a step with the shortlist offers a piece that is not on the shortlist")
            expected = log_softmax(logits[row][allowed])
            differences.add(np.abs(expected[np.searchsorted(allowed, offered)] - log_probs))
            differences.add(np.abs(expected.max() - log_probs[:1]))


def _step(buffers: Buffers, read: Sequence[int], step: int, *, logits: bool) -> Step:
    """Run a step in which both rows of each sentence read a token."""
    buffers.token_ids[:], buffers.positions[:] = np.repeat(read, 2), step
    return buffers.step(len(read), logits=logits)


# Golden sentences of a bundle: real sentences with translations and alignments in each precision for the CPU.
# A server rejects a bundle if a golden sentence gets another translation. Other processors sum in another order, so the
# chosen sentences have clear decisions: all precisions and both searches, greedy and beam, agree on them, and the score
# of the second-best translation is much lower. Between a processor with AVX-512 and VNNI and one without both, the
# margin of the best score in int8 changed by at most 6e-7 over 200 sentences. For chosen sentences it is about 0.1.

GOLDEN_SENTENCES = 20  # at most
FIRST_TEXTS = 100  # whose longer half is translated, to choose from; short sentences check little
GOLDEN_BATCH = 16  # texts that are translated together. More take much memory for the logits of a large vocabulary
MOST_PAIRS = 8  # that are checked, of a bundle of several languages
MIN_MARGIN = 1e-3  # score of the best translation minus the second best; 1,000 times the change between processors

LanguagePair = tuple[str, str]
"""A source and a target language."""


@dataclass(frozen=True, slots=True)
class _Translation:
    """The translation of a sentence in one precision.

    text: from beam search
    margin: its score minus that of the second-best translation, or -1 if greedy search finds another translation
    alignment: see `alignment_text`, empty without attention
    """

    text: str
    margin: float
    alignment: str


def golden_sentences(
    bundle: Bundle,
    runners: Mapping[str, OnnxRunner],
    texts: Sequence[str],
    log: Callable[[str], None] = lambda line: None,
    *,
    source: str = "",
) -> Golden | None:
    """Choose the texts with the largest margins and translate them with the engine, or None if no margin is large
    enough.

    A model without attention has no alignments.

    source: the language of the texts, for a bundle of several languages
    runners: the graphs of the precisions for the CPU. Results on GPUs differ between models of GPU
    """
    pool = _longer_half(list(dict.fromkeys(texts))[:FIRST_TEXTS])
    pairs = _pairs(bundle, source, len(pool))
    found = {name: _translated(bundle, runners[name], pool, pairs) for name in runners}  # one at a time in memory
    readable = [index for index in range(len(pool)) if all(column[index] is not None for column in found.values())]
    margins = {index: _margin([column[index] for column in found.values()]) for index in readable}
    clear = [index for index in readable if margins[index] >= MIN_MARGIN]
    chosen = sorted(sorted(clear, key=lambda index: -margins[index])[:GOLDEN_SENTENCES])
    if not chosen:
        log(f"no golden sentences: none of {len(readable)} has a margin of {MIN_MARGIN} in every precision")
        return None
    log(f"{len(chosen)} golden sentences: the smallest margin is {min(map(margins.__getitem__, chosen)):.2g}")
    own = [pairs[index] for index in chosen] if pairs else []
    sentences, aligned = tuple(pool[index] for index in chosen), bool(bundle.manifest.alignment.heads)
    return Golden(
        sentences,
        {name: tuple(one.text for index in chosen if (one := column[index])) for name, column in found.items()},
        {name: tuple(one.alignment for index in chosen if (one := column[index])) for name, column in found.items()}
        if aligned
        else {},
        tuple(map(" ".join, own)),
    )


def _longer_half(texts: Sequence[str]) -> list[str]:
    """Return the longer half of some texts in their order, but GOLDEN_SENTENCES of them at least."""
    count = max(len(texts) // 2, GOLDEN_SENTENCES)
    chosen = sorted(range(len(texts)), key=lambda index: -len(texts[index]))[:count]
    return [texts[index] for index in sorted(chosen)]


def _pairs(bundle: Bundle, source: str, count: int) -> list[LanguagePair]:
    """Return a pair for each of `count` texts in this language, alternately, or none for a bundle of one pair."""
    languages = bundle.manifest.languages
    pairs = [pair for pair in languages.pairs() if pair[0] == source] if languages else []
    return [pairs[position % min(len(pairs), MOST_PAIRS)] for position in range(count)] if pairs else []


def _translated(
    bundle: Bundle, runner: OnnxRunner, texts: Sequence[str], pairs: Sequence[LanguagePair]
) -> list[_Translation | None]:
    """Translate each text in one precision, or None if it is too long."""
    defaults, limits = bundle.manifest.defaults, bundle.manifest.limits
    beam_size = min(max(defaults.beam_size, 2), limits.max_beam_size)
    aligned = bool(bundle.manifest.alignment.heads)
    n_best = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=min(beam_size, 2), return_alignment=aligned)
    searches = (pb.DecodingOptions(beam_size=1, num_hypotheses=1), n_best)
    parts = [slice(first, first + GOLDEN_BATCH) for first in range(0, len(texts), GOLDEN_BATCH)]
    greedy, beams = (
        [each for part in parts for each in translate(bundle, runner, texts[part], options, pairs[part])]
        for options in searches
    )
    return [None if one.status.code else _translation(one, two) for one, two in zip(greedy, beams, strict=True)]


def _translation(greedy: pb.TextResult, beam: pb.TextResult) -> _Translation:
    best, *others = beam.hypotheses
    margin = best.score - max((other.score for other in others), default=best.score)
    margin = margin if best.text == greedy.hypotheses[0].text else -1.0
    return _Translation(best.text, margin, alignment_text(links(best)))


def _margin(column: Sequence[_Translation | None]) -> float:
    """Return the smallest margin of a sentence over all precisions, or -1 if their translations differ."""
    found = [one for one in column if one is not None]
    return min(one.margin for one in found) if len({one.text for one in found}) == 1 else -1.0
