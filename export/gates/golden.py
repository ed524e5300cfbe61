"""Golden sentences for a bundle: some real ones, with what each precision for the CPU makes of them.

A bundle is refused where one of them comes out otherwise, and other processors add up in another order. So sentences
are taken whose decisions are clear: every precision and both searches, greedy and beam, agree on them, and the next
best translation is far behind. Between a processor with AVX-512 and VNNI and one with neither, int8 moved the distance
of the two best of 200 sentences by 6e-7 at most; of the sentences that are taken it is about 0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lingon.bundle import Bundle
from lingon.bundle.golden import Golden
from lingon.serving.models.golden import translate
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.translation.v1 import translation_pb2 as pb

GOLDEN_SENTENCES = 20
CANDIDATE_SENTENCES = (
    200  # sentences that are looked at; of these the longer half, for the shortest check_golden little
)
MIN_MARGIN = 1e-3  # of scores, between the best and the next: a thousand times what another processor moved


@dataclass(frozen=True, slots=True)
class _Translation:
    """What one precision makes of one sentence.

    text: with beam search; margin: how far the next best translation is behind, below 0 where greedy search differs
    """

    text: str
    margin: float


def golden_sentences(
    bundle: Bundle,
    runners: Mapping[str, OnnxRunner],
    texts: Sequence[str],
    log: Callable[[str], None] = lambda line: None,
) -> Golden | None:
    """The clearest of the first texts, in their order, translated by the serving engine; None where none is clear.

    runners: the graphs of the precisions for the CPU; on cards results differ from card to card
    """
    pool = list(dict.fromkeys(texts))[:CANDIDATE_SENTENCES]
    found = {name: _translated(bundle, runner, pool) for name, runner in runners.items()}
    fitting = [place for place in range(len(pool)) if all(column[place] is not None for column in found.values())]
    longer = sorted(fitting, key=lambda place: -len(pool[place]))[: max(len(fitting) // 2, GOLDEN_SENTENCES)]
    margins = {place: _margin([column[place] for column in found.values()]) for place in longer}
    clear = [place for place in longer if margins[place] >= MIN_MARGIN]
    chosen = sorted(sorted(clear, key=lambda place: -margins[place])[:GOLDEN_SENTENCES])
    if not chosen:
        log(f"no golden sentences: of {len(longer)} none is translated alike by all by a margin of {MIN_MARGIN}")
        return None
    log(f"{len(chosen)} golden sentences: the closest decision is {min(map(margins.__getitem__, chosen)):.2g} apart")
    return Golden(
        tuple(pool[place] for place in chosen),
        {name: tuple(one.text for place in chosen if (one := column[place])) for name, column in found.items()},
    )


def _translated(bundle: Bundle, runner: OnnxRunner, texts: Sequence[str]) -> list[_Translation | None]:
    """What a precision makes of each text; None where it is too long."""
    defaults, limits = bundle.manifest.defaults, bundle.manifest.limits
    beam_size = min(max(defaults.beam_size, 2), limits.max_beam_size)
    rivals = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=min(beam_size, 2))
    searches = (pb.DecodingOptions(beam_size=1, num_hypotheses=1), rivals)
    greedy, beams = (translate(bundle, runner, texts, options) for options in searches)
    return [None if one.status.code else _translation(one, two) for one, two in zip(greedy, beams, strict=True)]


def _translation(greedy: pb.TextResult, beam: pb.TextResult) -> _Translation:
    best, *others = beam.hypotheses
    margin = best.score - max((other.score for other in others), default=best.score)
    return _Translation(best.text, margin if best.text == greedy.hypotheses[0].text else -1.0)


def _margin(column: Sequence[_Translation | None]) -> float:
    """That of a sentence over all precisions."""
    found = [one for one in column if one is not None]
    return min(one.margin for one in found) if len({one.text for one in found}) == 1 else -1.0
