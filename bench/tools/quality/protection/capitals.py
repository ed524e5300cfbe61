"""Upper-cased sentences: their scores as they are, through the text layer, and in normal case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lingon.bench.tools.quality.protection.answers import Answers
from lingon.bundle import Bundle
from lingon.scoring import score
from lingon.segments.capitals import names_of
from lingon.segments.steps import translate_sentence


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
