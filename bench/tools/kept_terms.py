"""Strings that must not change, as terms that are their own translations: how many come out byte for byte.

    python -m lingon.bench.tools.kept_terms models/en-de tests/data/tatoeba.en

Each string is drawn at random and takes the place of a name in a sentence, which the request gives as a term with
the string as source and target. Strings that protection would keep without a term are among them, and strings that the
vocabulary cannot write. A string is kept if the translation has it once, with nothing of its own kind beside it.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from lingon.bench.options import ToolResults
from lingon.bench.results_file import Row, keep, show
from lingon.errors import SettingsError
from lingon.files import read_lines
from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb

NAME = "Tom"  # in whose place a string is
SEED = 60
IN_PROGRESS = 64  # requests

_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюя"
_HAN = "永和九年歲在癸丑暮春之初會於山陰蘭亭"


def _letters(draw: random.Random, letters: str, most: int) -> str:
    return "".join(draw.choices(letters, k=draw.randint(3, most)))


KINDS: dict[str, Callable[[random.Random], str]] = {
    "URL": lambda draw: (
        f"https://{_letters(draw, string.ascii_lowercase, 12)}.example/"
        f"{_letters(draw, string.ascii_letters, 9)}?q={_letters(draw, string.hexdigits, 8)}&n={draw.randrange(999)}#top"
    ),
    "path": lambda draw: f"/{_letters(draw, string.ascii_lowercase, 8)}/{_letters(draw, string.ascii_letters, 8)}.cfg",
    "code": lambda draw: f"{_letters(draw, string.ascii_lowercase, 8)}_{_letters(draw, string.ascii_letters, 8)}()",
    "Cyrillic": lambda draw: _letters(draw, _CYRILLIC, 12).capitalize(),
    "Han": lambda draw: _letters(draw, _HAN, 6),
    "emoji": lambda draw: "".join(
        draw.choices(["🙂", "🚀", "👩\u200d💻", "🏳️\u200d🌈", "👍🏽", "🇩🇪"], k=draw.randint(1, 3))
    ),
    "number": lambda draw: f"{draw.randrange(10**4)}-{draw.randrange(100)}/{draw.choice('XYZ')}",
    "letters and figures": lambda draw: _letters(draw, string.ascii_uppercase + string.digits, 10),
    "brand": lambda draw: " ".join(_letters(draw, string.ascii_lowercase, 9).capitalize() for _ in range(2)),
    "accents": lambda draw: _letters(draw, "äöüßéèñçøåłśžőğıþð", 9),
}


def measure(
    translator: LocalTranslator, sentences: Sequence[str], count: int, beam_size: int
) -> tuple[list[Row], list[str]]:
    """Return a row for each kind of string, and a line for each string that was not kept.

    sentences: each with the name once; they are used one after the other, from the first one again
    """
    draw, names = random.Random(SEED), list(KINDS)
    kept, lost = dict.fromkeys(names, 0), list[str]()
    cases = [(names[number % len(names)], sentences[number % len(sentences)]) for number in range(count)]
    strings = [KINDS[kind](draw) for kind, _ in cases]
    for begin in range(0, count, IN_PROGRESS):
        some = list(zip(cases, strings, strict=True))[begin : begin + IN_PROGRESS]
        waiting = [
            translator.begin("Translate", _request(sentence.replace(NAME, wanted), wanted, beam_size))
            for (_, sentence), wanted in some
        ]
        for ((kind, _), wanted), future in zip(some, waiting, strict=True):
            text = future.result().results[0].hypotheses[0].text
            if is_kept(text, wanted):
                kept[kind] += 1
            else:
                lost.append(f"{kind}: {wanted!r} in {text!r}")
    totals = {kind: sum(each == kind for each, _ in cases) for kind in names}
    return [
        {"kind": kind, "strings": totals[kind], "kept": kept[kind], "kept, %": 100 * kept[kind] / max(totals[kind], 1)}
        for kind in names
    ], lost


def is_kept(text: str, wanted: str) -> bool:
    """Return whether a translation has a string once, and not as a part of a longer word."""
    before, found, after = text.partition(wanted)
    whole = not (before[-1:].isalnum() and wanted[0].isalnum()) and not (after[:1].isalnum() and wanted[-1].isalnum())
    return bool(found) and whole and wanted not in after


def _request(text: str, wanted: str, beam_size: int) -> pb.TranslateRequest:
    term = pb.Term(source=wanted, target=wanted, case=pb.TERM_CASE_EXACT)
    return pb.TranslateRequest(texts=[text], terms=[term], options=pb.DecodingOptions(beam_size=beam_size))


def main(
    model: Annotated[Path, typer.Argument(help="A bundle.")],
    source: Annotated[Path, typer.Argument(help=f"Sentences, one a line; those with {NAME} once are used.")],
    count: Annotated[int, typer.Option(min=1, help="Strings.")] = 1000,
    beam_size: Annotated[int, typer.Option(min=1, help="Of the search.")] = 1,
    results: ToolResults = None,
) -> None:
    """Print how many strings come out as they went in, and save it if there is a folder."""
    sentences = [line for line in read_lines(source) if line.split().count(NAME) == line.count(NAME) == 1]
    if not sentences:
        raise SettingsError(f"{source} must have a sentence with {NAME}, and has none")
    with LocalTranslator(model) as translator:
        rows, lost = measure(translator, sentences, count, beam_size)
    show(rows)
    for line in lost:
        print(line)
    keep("kept-terms", rows, results, beam_size=beam_size, lost=lost)


if __name__ == "__main__":
    typer.run(main)
