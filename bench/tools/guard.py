"""The quality of the guard and of the confidence of a bundle: false flags, AUROC, calibration, languages and time.

    python -m lingon.bench.tools.guard models/en-de test.en test.de --other ntrex.en ntrex.de

False flags: of pairs that people translated, every flag is wrong. AUROC: the probability that a translation with a chrF
of 50 or more has a higher confidence than another one, on text of the own kind, and on 600 sentences of it together
with 200 of the other kind. The calibration error is of the own kind.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from lingon.bench.options import ToolResults
from lingon.bench.results_file import Row, keep, show
from lingon.bundle.names import PROFILE_BYTES, PROFILES
from lingon.bundle.store import Bundle, open_bundle
from lingon.export.text_data import auroc, calibration_error, reliability
from lingon.files import read_parallel
from lingon.scoring import sentence_chrf
from lingon.serving.guard import GOOD, Guard, Languages, Sentence
from lingon.serving.in_process import LocalTranslator
from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb

TEXTS = 64  # in one request
MIXED = (600, 200)  # sentences of the own and of the other kind
LONG = 20  # characters of a text whose language can be detected
Pairs = Sequence[tuple[str, str]]


def false_flags(bundle: Bundle, pairs: Pairs) -> list[Row]:
    """Return the share of pairs with each flag, and the time to judge a pair."""
    tokenizer = bundle.tokenizer()
    guard, counts, flagged = Guard.of(bundle, tokenizer), Counter[str](), 0
    sentences = [
        Sentence(source, target, tokenizer.unframed(tokenizer.encode_source(source)), tokenizer.encode_target(target))
        for source, target in pairs
    ]
    begin = time.process_time()
    for sentence in sentences:
        found = guard.judge(sentence).flags
        counts.update(found)
        flagged += bool(found)
    seconds = time.process_time() - begin
    rows = [{"measure": f"false {flag}", "value": 100 * count / len(pairs)} for flag, count in counts.most_common()]
    return [
        {"measure": "pairs", "value": len(pairs)},
        *rows,
        {"measure": "false flags, % of pairs", "value": 100 * flagged / len(pairs)},
        {"measure": "microseconds to judge a pair", "value": 1e6 * seconds / len(pairs)},
    ]


def languages(bundle: Bundle, pairs: Pairs) -> list[Row]:
    """Return the share of long texts whose language is detected."""
    content = bundle.read(PROFILES)
    profiles = Languages([content[:PROFILE_BYTES], content[PROFILE_BYTES:]])
    rows = []
    for index, side in enumerate(("source", "target")):
        texts = [pair[index] for pair in pairs if len(pair[index]) >= LONG]
        right = sum(int(np.argmin(profiles.surprise(text))) == index for text in texts)
        rows.append({"measure": f"language of the {side} told, %", "value": 100 * right / max(len(texts), 1)})
    return rows


def confidences(translator: LocalTranslator, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Return the confidence of each translation, and whether it is right."""
    found = list[pb.TextResult]()
    options = pb.DecodingOptions(beam_size=4, long_text=pb.LONG_TEXT_POLICY_SPLIT)
    for begin in range(0, len(pairs), TEXTS):
        texts = [source for source, _ in pairs[begin : begin + TEXTS]]
        found += translator.translate(pb.TranslateRequest(texts=texts, options=options)).results
    chrf = [sentence_chrf(each.hypotheses[0].text, target) for each, (_, target) in zip(found, pairs, strict=True)]
    return np.array([each.confidence for each in found]), np.array(chrf) >= GOOD


def worth(translator: LocalTranslator, own: Pairs, other: Pairs) -> list[Row]:
    """Return AUROC and calibration error."""
    confidence, right = confidences(translator, own)
    rows = [
        {"measure": f"AUROC, {len(own)} of the own kind", "value": auroc(confidence, right)},
        {"measure": "calibration error, own kind", "value": calibration_error(reliability(confidence, right))},
    ]
    if other:
        first, more = MIXED
        others = confidences(translator, other[:more])
        mixed = (np.concatenate([confidence[:first], others[0]]), np.concatenate([right[:first], others[1]]))
        rows.append({"measure": f"AUROC, {first} of the own and {more} of the other kind", "value": auroc(*mixed)})
    return rows


def main(
    model: Annotated[Path, typer.Argument(help="A bundle with confidence.")],
    source: Annotated[Path, typer.Argument(help="Sentences of the own kind, one a line, plain or packed.")],
    target: Annotated[Path, typer.Argument(help="Their translations, line by line.")],
    other: Annotated[tuple[Path, Path] | None, typer.Option(help="The same of another kind of text.")] = None,
    count: Annotated[int, typer.Option(min=600, help="Pairs to judge.")] = 10_000,
    translated: Annotated[int, typer.Option(min=600, help="Sentences to translate.")] = 2000,
    results: ToolResults = None,
) -> None:
    """Print the quality of guard and confidence, and save it if there is a folder for it."""
    bundle = open_bundle(model)
    own, others = _pairs(source, target)[:count], _pairs(*other) if other else []
    rows = [*false_flags(bundle, own), *languages(bundle, own)]
    with LocalTranslator(model) as translator:
        rows += worth(translator, own[:translated], others)
    show(rows)
    keep("guard", rows, results)


def _pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    return [(normalise(first), normalise(second)) for first, second in read_parallel(source, target)]


if __name__ == "__main__":
    typer.run(main)
