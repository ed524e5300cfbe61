"""Golden sentences for a bundle: some real ones, with what each precision for the CPU makes of them.

A bundle is refused where one of them comes out otherwise, and other processors add up in another order. So sentences
are taken whose decisions are clear: every precision and both searches agree on them, and the next best translation is
far behind. Between a processor with AVX-512 and VNNI and one with neither, int8 moved the distance of the two best of
200 sentences by 6e-7 at most; of the sentences that are taken it is about 0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lingon.bundle import Bundle
from lingon.golden import Golden
from lingon.translation.v1 import translation_pb2 as pb
from serving.golden import translate
from serving.onnx_runner import load_runner

SENTENCES = 20
POOL = 200  # sentences that are looked at; of these the longer half, for the shortest prove little


@dataclass(frozen=True, slots=True)
class _Found:
    """What one precision makes of one sentence.

    text: with the bundle's defaults; clear: how far the next best translation is behind, below 0 where searches differ
    """

    text: str
    clear: float


def golden_sentences(
    bundle: Bundle, precisions: Sequence[str], texts: Sequence[str], say: Callable[[str], None] = lambda line: None
) -> Golden:
    """The clearest of the first texts, in their order, translated by the serving engine.

    precisions: those for the CPU; on cards results differ from card to card
    """
    pool = list(dict.fromkeys(texts))[:POOL]
    found = {name: _translated(bundle, name, pool) for name in precisions}
    fitting = [place for place in range(len(pool)) if all(column[place] is not None for column in found.values())]
    longer = sorted(fitting, key=lambda place: -len(pool[place]))[: max(len(fitting) // 2, SENTENCES)]
    clear = {place: _clear([column[place] for column in found.values()]) for place in longer}
    chosen = sorted(sorted(longer, key=lambda place: -clear[place])[:SENTENCES])
    assert chosen, "gates are run on sentences that fit"
    say(f"{len(chosen)} golden sentences: the closest decision is {min(map(clear.__getitem__, chosen)):.2f} apart")
    return Golden(
        tuple(pool[place] for place in chosen),
        {name: tuple(one.text for place in chosen if (one := column[place])) for name, column in found.items()},
    )


def _translated(bundle: Bundle, precision: str, texts: Sequence[str]) -> list[_Found | None]:
    """What a precision makes of each text; None where it is too long."""
    runner, manifest = load_runner(bundle, precision, threads=0), bundle.manifest
    beam_size = min(max(manifest.defaults.beam_size, 2), manifest.limits.max_beam_size)
    rivals = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=min(beam_size, 2))
    plain, beams = (translate(bundle, runner, texts, options) for options in (pb.DecodingOptions(), rivals))
    return [None if one.status.code else _found(one, two) for one, two in zip(plain, beams, strict=True)]


def _found(plain: pb.TextResult, beam: pb.TextResult) -> _Found:
    text, best, *others = plain.hypotheses[0].text, *beam.hypotheses
    apart = best.score - max((other.score for other in others), default=best.score)
    return _Found(text, apart if best.text == text else -1.0)


def _clear(column: Sequence[_Found | None]) -> float:
    """How clear a sentence is over all precisions."""
    found = [one for one in column if one is not None]
    return min(one.clear for one in found) if len({one.text for one in found}) == 1 else -1.0
