"""Golden sentences of a bundle: real sentences with translations and alignments in each precision for the CPU.

A server rejects a bundle if a golden sentence gets another translation. Other processors sum in another order, so the
chosen sentences have clear decisions: all precisions and both searches, greedy and beam, agree on them, and the score
of the second-best translation is much lower. Between a processor with AVX-512 and VNNI and one without both, the
margin of the best score in int8 changed by at most 6e-7 over 200 sentences; for chosen sentences it is about 0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lingon.bundle import Bundle
from lingon.bundle.golden import Golden, alignment_text
from lingon.serving.models.golden import links, translate
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.translation.v1 import translation_pb2 as pb

GOLDEN_SENTENCES = 20  # at most
FIRST_TEXTS = 100  # whose longer half is translated, to choose from; short sentences check little
MOST_PAIRS = 8  # that are checked, of a bundle of several languages
MIN_MARGIN = 1e-3  # score of the best translation minus the second best; 1,000 times the change between processors

LanguagePair = tuple[str, str]
"""A source and a target language."""


@dataclass(frozen=True, slots=True)
class _Translation:
    """The translation of a sentence in one precision.

    text: from beam search
    margin: its score minus that of the second-best translation; -1 if greedy search finds another translation
    alignment: see `alignment_text`; empty without attention
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
    """Choose the texts with the largest margins and translate them with the engine; None if no margin is large enough.

    A model without attention has no alignments.

    source: the language of the texts, for a bundle of several languages
    runners: the graphs of the precisions for the CPU; results on GPUs differ between models of GPU
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
    """Return a pair for each of `count` texts in this language, in turns; none for a bundle of one pair."""
    languages = bundle.manifest.languages
    pairs = [pair for pair in languages.pairs() if pair[0] == source] if languages else []
    return [pairs[place % min(len(pairs), MOST_PAIRS)] for place in range(count)] if pairs else []


def _translated(
    bundle: Bundle, runner: OnnxRunner, texts: Sequence[str], pairs: Sequence[LanguagePair]
) -> list[_Translation | None]:
    """Translate each text in one precision; None if it is too long."""
    defaults, limits = bundle.manifest.defaults, bundle.manifest.limits
    beam_size = min(max(defaults.beam_size, 2), limits.max_beam_size)
    aligned = bool(bundle.manifest.alignment.heads)
    n_best = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=min(beam_size, 2), return_alignment=aligned)
    searches = (pb.DecodingOptions(beam_size=1, num_hypotheses=1), n_best)
    greedy, beams = (translate(bundle, runner, texts, options, pairs) for options in searches)
    return [None if one.status.code else _translation(one, two) for one, two in zip(greedy, beams, strict=True)]


def _translation(greedy: pb.TextResult, beam: pb.TextResult) -> _Translation:
    best, *others = beam.hypotheses
    margin = best.score - max((other.score for other in others), default=best.score)
    margin = margin if best.text == greedy.hypotheses[0].text else -1.0
    return _Translation(best.text, margin, alignment_text(links(best)))


def _margin(column: Sequence[_Translation | None]) -> float:
    """Return the smallest margin of a sentence over all precisions; -1 if their translations differ."""
    found = [one for one in column if one is not None]
    return min(one.margin for one in found) if len({one.text for one in found}) == 1 else -1.0
