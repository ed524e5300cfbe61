"""How well wanted words come into translations, what else changes and what it costs: all methods in one run.

    python -m lingon.bench.tools.terms models/en-de tests/data/terms.tsv
    python -m lingon.bench.tools.terms models/en-de test.en --references test.de

With references, terms are mined from them: see `lingon.bench.tools.term_mining`.
A term is satisfied if its target stands in the translation as a word, case aside and with up to three letters after it.
chrF is against the translation of the same engine without terms, with a mask in both for the term and for the word that
it stands in for: it tells how much of the rest changed, and nothing about an article that no longer agrees.
The log-probability is the mean over the tokens of the whole translation. The cost is the CPU time of this process,
divided by that of the same engine without terms: the median of rounds in which the methods take
turns. CTranslate2 is measured if it is installed.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from lingon.bench.engines import ctranslate2
from lingon.bench.options import ToolResults, check_choice
from lingon.bench.results_file import Row, keep, show
from lingon.bench.tools.term_methods import (
    Decode,
    Linked,
    Method,
    Sentence,
    ServiceMethods,
    Wanted,
    aligned_word,
    standing,
)
from lingon.bench.tools.term_mining import Mined, mine
from lingon.bundle.store import open_bundle
from lingon.errors import SettingsError
from lingon.files import read_lines, read_parallel
from lingon.scoring import score
from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb

MASK = "@"


def read(path: Path) -> list[Mined]:
    """Read sentences with a term: the word, its translation and the sentence, separated by tabs."""
    found = []
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split("\t")
        if len(fields) != 3:
            raise SettingsError(
                f"{path}, line {number}: a line must have 3 fields separated by tabs, got {len(fields)}"
            )
        source, target, text = fields
        found.append(Mined(Sentence(text, (Wanted(source, target),)), reference=""))
    return found


def compare(
    methods: Mapping[str, Method], sentences: Sequence[Sentence], rounds: int
) -> tuple[dict[str, list[str]], dict[str, float]]:
    """Return the translations of each method, and the median CPU time of each in milliseconds a sentence."""
    texts = {name: method(sentences) for name, method in methods.items()}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, method in methods.items():
            begin = time.process_time()
            method(sentences)
            seconds[name].append(time.process_time() - begin)
    return texts, {name: 1000 * statistics.median(each) / len(sentences) for name, each in seconds.items()}


def satisfied(text: str, sentence: Sentence) -> int:
    """Return the number of terms of a sentence that a translation has."""
    return sum(standing(text, term.target) is not None for term in sentence.terms)


def masked(text: str, terms: Sequence[Wanted], free: Linked | None = None) -> str:
    """Return a translation with a mask for each of its terms.

    free: the translation without terms; in it a mask is also for the word of a term that it lacks
    """
    for term in terms:
        place = standing(text, term.target)
        if place is None and free is not None:
            place = aligned_word(Linked(free.source, text, free.links), term.source)
        if place is not None:
            text = text[: place[0]] + MASK * (place[1] - place[0]) + text[place[1] :]
    return _short_masks(text)


def _short_masks(text: str) -> str:
    """Return a text with masks of one character, however long the words were."""
    while MASK * 2 in text:
        text = text.replace(MASK * 2, MASK)
    return text


class Compared(NamedTuple):
    """The methods of one engine, the one without terms first, and its translations with links."""

    methods: Mapping[str, Method]
    decode: Decode


def table(
    service: ServiceMethods,
    engines: Sequence[Compared],
    texts: Mapping[str, Sequence[str]],
    costs: Mapping[str, float],
    given: Sequence[Mined],
) -> list[Row]:
    """Return a row for each method. chrF and cost are relative to the same engine without terms.

    given: the sentences, with references if BLEU is to be measured
    """
    sentences, references = [each.sentence for each in given], [each.reference for each in given]
    wanted, rows = sum(len(each.terms) for each in sentences), list[Row]()
    for engine in engines:
        free = engine.decode([each.text for each in sentences], [])
        base = next(iter(engine.methods))
        for name in engine.methods:
            reached = sum(map(satisfied, texts[name], sentences))
            log_probs = service.log_probs(
                [(each.text, text) for each, text in zip(sentences, texts[name], strict=True)]
            )
            row: Row = {
                "method": name,
                "terms": wanted,
                "satisfied": reached,
                "satisfied, %": 100 * reached / wanted,
                "chrF, terms masked": masked_chrf(texts[name], free, sentences),
                "log p a token": statistics.fmean(log_probs),
                **({"BLEU": score(texts[name], references).bleu} if all(references) else {}),
                "CPU ms a sentence": costs[name],
                "cost": costs[name] / costs[base],
            }
            rows.append({key: round(each, 3) if isinstance(each, float) else each for key, each in row.items()})
    return rows


def masked_chrf(found: Sequence[str], free: Sequence[Linked], sentences: Sequence[Sentence]) -> float:
    """Return chrF against free translations with masks. One that is the free translation has 100.

    free: the translations without terms
    """
    references = [masked(each.text, sentence.terms, each) for each, sentence in zip(free, sentences, strict=True)]
    hypotheses = [
        masked(text, sentence.terms, each if text == each.text else None)
        for text, each, sentence in zip(found, free, sentences, strict=True)
    ]
    return score(hypotheses, references).chrf


def outcomes(service: ServiceMethods, sentences: Sequence[Sentence]) -> list[Row]:
    """Return how many terms the service reports for each means."""
    counts = Counter(term.means for result in service.results(sentences) for term in result.terms)
    return [{"means": pb.TermMeans.Name(means).lower(), "terms": count} for means, count in sorted(counts.items())]


def compared_engines(service: ServiceMethods, model: Path, folder: Path, chosen: Sequence[str]) -> list[Compared]:
    """Return the engines that are installed, with the methods that are chosen, or all.

    folder: for a converted model
    """
    engines = [Compared(service.all(), service.linked)]
    if chosen:
        check_choice("--method", chosen, engines[0].methods)
        base = next(iter(engines[0].methods))
        return [Compared({name: engines[0].methods[name] for name in dict.fromkeys([base, *chosen])}, service.linked)]
    if ctranslate2.unavailable_reason() is None:
        from lingon.bench.tools.term_ctranslate2 import CTranslate2Methods

        other = CTranslate2Methods(open_bundle(model), folder, service.beam_size)
        engines.append(Compared(other.all(), other.linked))
    return engines


def main(
    model: Annotated[Path, typer.Argument(help="A bundle whose model has attention.")],
    sentences: Annotated[Path, typer.Argument(help="Sentences with a term each, see tests/data/README.md.")],
    references: Annotated[
        Path | None, typer.Option(help="Translations of the sentences, from which terms are mined.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Sentences with terms from references.")] = 500,
    terms: Annotated[int, typer.Option(min=1, help="Terms of each of them.")] = 1,
    method: Annotated[
        list[str] | None, typer.Option(help="Measure this method of Lingon alone; may be repeated. (default: all)")
    ] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="Of all searches.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which CPU time is measured.")] = 5,
    results: ToolResults = None,
) -> None:
    """Print what each method reaches, and save it if there is a folder, with the translations of a list."""
    manifest = open_bundle(model).manifest
    with LocalTranslator(model) as translator, tempfile.TemporaryDirectory() as folder:
        if references is None:
            given = read(sentences)
        else:
            given = mine(translator, list(read_parallel(sentences, references)), count=count, terms=terms)
        asked = [each.sentence for each in given]
        service = ServiceMethods(translator, beam_size)
        engines = compared_engines(service, model, Path(folder), method or ())
        methods = {name: method for engine in engines for name, method in engine.methods.items()}
        texts, costs = compare(methods, asked, rounds)
        rows, means = table(service, engines, texts, costs, given), outcomes(service, asked)
    show(rows)
    show(means, title="terms, as the service reports them")
    if references is not None:  # sentences of others, which may not be copied
        pair = f"{manifest.source_language}-{manifest.target_language}"
        keep(f"terms-mined-{pair}", rows, results, beam_size=beam_size, terms=terms, means=means)
        return
    translations = [
        {"source": each.text, "wanted": each.terms, **{name: found[index] for name, found in texts.items()}}
        for index, each in enumerate(asked)
    ]
    keep("terms", rows, results, beam_size=beam_size, means=means, translations=translations)


if __name__ == "__main__":
    typer.run(main)
