"""The scores of a system: BLEU and chrF of its bundle's translations, and the error rate of its word alignments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingon.alignment import Agreement
from lingon.bench.attention.plan import ALIGNED, PAIR
from lingon.bundle import Bundle
from lingon.cli.aligning import Aligner, Heads, JudgeLinks, LinkFile, attention_options
from lingon.cli.backend import open_translator
from lingon.cli.options.backend import BackendOptions
from lingon.lines import read_parallel
from lingon.scoring import score
from lingon.serving.in_process import translate_lines

BEAM_SIZE = 4
LENGTH_PENALTY = 1.0
PAIRS = 8  # pairs of a request for attention
HALVES = 2


@dataclass(frozen=True, slots=True)
class Translations:
    """What a bundle makes of a test set, with the references."""

    sources: list[str]
    hypotheses: list[str]
    references: list[str]


def translate(bundle: Bundle, files: tuple[Path, Path]) -> Translations:
    """Translate a test set with the engine of `lingon serve`, in this process, on the CPU."""
    pairs = list(read_parallel(*files))
    sources, references = [each[0] for each in pairs], [each[1] for each in pairs]
    found = translate_lines(
        bundle.folder, sources, beam_size=BEAM_SIZE, length_penalty=LENGTH_PENALTY, device="cpu", precision="fp32"
    )
    return Translations(sources, found.lines, references)


def quality(found: Translations) -> dict[str, Any]:
    """BLEU and chrF of a test set, with the signatures of sacreBLEU."""
    scores = score(found.hypotheses, found.references)
    return {
        "bleu": round(scores.bleu, 2),
        "chrf": round(scores.chrf, 2),
        "signatures": {"bleu": scores.bleu_signature, "chrf": scores.chrf_signature},
    }


def alignment(bundle: Bundle, data: Path) -> dict[str, Any]:
    """The alignment error rate (AER) of a bundle's attention; None for a model without attention.

    The pairs are dealt out to two halves in turns. The layer, the heads and the shift with the lowest rate on one half
    are measured on the other; the figure is that of both halves together. Pairs that are too long are left out.
    """
    if not bundle.manifest.alignment.heads:
        return {"aer": None, "aer_pairs": 0, "aer_heads": []}
    source, target = (data / f"{ALIGNED}.test.{language}.gz" for language in PAIR.split("-"))
    pairs = list(read_parallel(source, target))
    halves, aligned = _judged(bundle, pairs, LinkFile.read(data / f"{ALIGNED}.test.align.gz"))
    total, chosen = Agreement(), list[str]()
    for half, other in zip(halves, reversed(halves), strict=True):
        best = min(half, key=lambda heads: half[heads].error_rate)
        total += other[best]
        chosen.append(" ".join(best.columns()))
    return {"aer": round(total.error_rate, 4), "aer_pairs": aligned, "aer_heads": chosen}


def _judged(
    bundle: Bundle, pairs: Sequence[tuple[str, str]], gold: LinkFile
) -> tuple[list[dict[Heads, Agreement]], int]:
    """For each half of the pairs, the agreement of all layers and heads with the right links; the number of pairs."""
    aligner = Aligner(options=attention_options(None))
    judges = [JudgeLinks(aligner=aligner, gold=gold, heads=None, as_json=False) for _ in range(HALVES)]
    options = BackendOptions(model=str(bundle.folder), device="cpu", precision="fp32")
    aligned = 0
    with open_translator(options) as translator:
        for begin in range(0, len(pairs), PAIRS):
            batch = list(pairs[begin : begin + PAIRS])
            results = aligner.answer(translator, batch)
            aligned += sum(result.error is None for result in results)
            for number, (pair, result) in enumerate(zip(batch, results, strict=True), start=begin + 1):
                judges[number % HALVES].render(number, pair, result)
    return [judge.totals for judge in judges], aligned
