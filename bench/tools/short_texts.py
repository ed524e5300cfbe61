"""How well the language of short texts is detected: words of menus, names and numbers of one to five words.

    python -m lingon.bench.tools.short_texts tests/data/short_texts.tsv

The detection is the one of a server with models of all languages. A text is right if the likeliest language has it,
undecided if the confidence of that language is below the bound of the API, and wrong if the decision is a language that
does not have it. The calibration error is the mean difference between the confidence and the share that is right, over
ten groups of texts by their confidence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from lingon.bench.options import ToolResults
from lingon.bench.results_file import keep, show
from lingon.errors import SettingsError
from lingon.identifiers import load_identifiers
from lingon.serving.event_loop import TimeSlice
from lingon.serving.translation.detection import Detector
from lingon.source_language import DECIDED
from lingon.translation.v1 import translation_pb2 as pb

SERVED = "ar bg ca cs da de el en es et fa fi fr he hi hu id it ja ko lt nl no pl pt ro ru sv tr uk vi zh"
BINS = 10  # of the calibration error
Languages = Sequence[tuple[str, float]]
Detect = Callable[[Sequence["ShortText"]], list[Languages]]
"""Returns the languages of each text with their probabilities, the likeliest first; none if nothing is detected."""


class ShortText(NamedTuple):
    """A text.

    answers: the languages that have it
    """

    kind: str
    language: str
    answers: frozenset[str]
    text: str


def read(path: Path) -> list[ShortText]:
    """Read texts: the kind, the language, all languages that have the text, and the text, separated by tabs."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fields = line.split("\t")
        if len(fields) != 4:
            raise SettingsError(
                f"{path}, line {number}: a line must have 4 fields separated by tabs, got {len(fields)}"
            )
        kind, language, answers, text = fields
        found.append(ShortText(kind, language, frozenset(answers.split()), text))
    return found


def detection(served: Sequence[str], *, same_language: bool) -> Detect:
    """Return the detection of a server with models of these languages.

    same_language: each request has the texts of one language and kind, and says that they are in one language
    """
    detector = Detector([], {tag: tag for tag in served})

    def detected(texts: Sequence[ShortText]) -> list[Languages]:
        groups = groupby(texts, key=lambda each: (each.language, each.kind == "program") if same_language else ())
        return asyncio.run(replies([list(group) for _, group in groups]))

    async def replies(groups: Sequence[Sequence[ShortText]]) -> list[Languages]:
        found: list[Languages] = []
        for group in groups:
            request = pb.DetectLanguagesRequest(texts=[each.text for each in group], same_language=same_language)
            reply = await detector.detect_all(request, TimeSlice())
            found += [[(each.language_code, each.confidence) for each in one.languages] for one in reply.results]
        return found

    return detected


def measure(name: str, texts: Sequence[ShortText], found: Sequence[Languages], seconds: float) -> list[dict[str, Any]]:
    """Return a row for each kind of texts, and one for all but the kind `program`. seconds: of all texts."""
    kinds = dict.fromkeys(each.kind for each in texts)
    groups = {"all but program": [kind for kind in kinds if kind != "program"], **{kind: [kind] for kind in kinds}}
    rows = []
    for group, members in groups.items():
        pairs = [(text, each) for text, each in zip(texts, found, strict=True) if text.kind in members]
        if not pairs:
            continue
        right = np.array([bool(each) and each[0][0] in text.answers for text, each in pairs])
        confidence = np.array([each[0][1] if each else 0.0 for _, each in pairs])
        decided = confidence >= DECIDED
        row: dict[str, Any] = {
            "detector": name,
            "kind": group,
            "texts": len(pairs),
            "likeliest is right, %": 100 * right.mean(),
            "undecided, %": 100 * (~decided).mean(),
            "right or undecided, %": 100 * (right | ~decided).mean(),
            "wrong and decided, %": 100 * (~right & decided).mean(),
            "calibration error": _calibration_error(confidence, right),
            "ms a text": 1000 * seconds / len(texts),
        }
        rows.append({key: round(float(each), 3) if isinstance(each, float) else each for key, each in row.items()})
    return rows


def _calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    groups = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return sum(abs(float((confidence - right)[groups == each].sum())) for each in range(BINS)) / len(right)


def main(
    texts: Annotated[Path, typer.Argument(help="Texts with their languages, see tests/data/README.md.")],
    served: Annotated[str, typer.Option(help="The languages that are distinguished, with blanks.")] = SERVED,
    results: ToolResults = None,
) -> None:
    """Print how well a server detects the language of short texts, and save it if there is a folder."""
    tags = served.split()
    given = [each for each in read(texts) if each.language in tags]
    if not given:
        raise SettingsError(f"--served must have a language of {texts}, got {served!r}")
    if load_identifiers() is None:
        raise SettingsError("this measurement needs the extra `detect`")
    rows: list[dict[str, Any]] = []
    for name, same_language in (("server", False), ("server, same_language", True)):
        detect = detection(tags, same_language=same_language)
        detect(given[:1])  # loads its model
        begin = time.perf_counter()
        found = detect(given)
        rows += measure(name, given, found, time.perf_counter() - begin)
    show(rows)
    keep("short-texts", rows, results, served=tags, decided=DECIDED)


if __name__ == "__main__":
    typer.run(main)
