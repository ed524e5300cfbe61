"""What terms cost a server: throughput with terms in every sentence, and with a large glossary of which none matches.

    python -m lingon.bench.tools.term_costs models/en-de test.en test.de --listed tests/data/terms.tsv

Each request has one sentence, as those of most clients, and many are in progress. Throughput is by the CPU time of this
process, with the engine of a server and without its ports. The cases take turns, and a share is the median of the
rounds: the CPU time without terms, divided by that of the case. Terms from references are those of
`lingon.bench.tools.term_mining`, of which a model writes many unasked; those of the list are unusual, so that nearly
every sentence is translated again.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from lingon.bench.options import ToolResults
from lingon.bench.results_file import Row, keep, search_name, show
from lingon.bench.tools.term_methods import Sentence
from lingon.bench.tools.term_mining import mine
from lingon.bench.tools.terms import read
from lingon.bundle.store import open_bundle
from lingon.files import read_parallel
from lingon.serving.in_process import LIMITS, LocalTranslator
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.translation.terms import NOTHING_STORED, CallerStores
from lingon.serving.translation.translator import Translator
from lingon.terms.matcher import Matcher
from lingon.terms.term import Term
from lingon.translation.v1 import translation_pb2 as pb

IN_PROGRESS = 64  # requests
GLOSSARY = "large"
SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]


class Case(NamedTuple):
    """Requests of a kind. base: the name of the case without terms; stores: of the caller."""

    base: str
    requests: Sequence[pb.TranslateRequest]
    stores: CallerStores = NOTHING_STORED


class OneGlossary:
    """A `TermSources` with one glossary for any caller and pair of languages."""

    def __init__(self, matcher: Matcher) -> None:
        self._found = [(GLOSSARY, matcher)]

    async def find(self, caller: str, names: Sequence[str], source: str, target: str) -> list[tuple[str, Matcher]]:
        """Return the glossary if it is named."""
        return self._found if GLOSSARY in names else []


def made_up_terms(count: int) -> list[Term]:
    """Return different terms of one or two made-up words of four syllables, which are in no text."""
    draw, sources = random.Random(count), dict[str, None]()
    while len(sources) < count:
        words = ["".join(draw.choices(SYLLABLES, k=4)) for _ in range(draw.randint(1, 2))]
        sources[" ".join(words)] = None
    return [Term(source, source[::-1]) for source in sources]


def requests_of(
    sentences: Sequence[Sentence], options: pb.DecodingOptions, terms: Callable[[Sentence], Sequence[pb.Term]]
) -> list[pb.TranslateRequest]:
    """Return a request for each sentence. terms: returns those of a sentence."""
    return [pb.TranslateRequest(texts=[each.text], options=options, terms=terms(each)) for each in sentences]


def cases_of(mined: Sequence[Sentence], listed: Sequence[Sentence], entries: int, beam_size: int) -> dict[str, Case]:
    """Return the cases by name."""
    options = pb.DecodingOptions(beam_size=beam_size)
    others = [pb.Term(source=each.source, target=each.target) for each in made_up_terms(100)]
    large = CallerStores(glossaries=OneGlossary(Matcher(made_up_terms(entries), "en")))
    free = requests_of(mined, options, lambda _: [])
    named = [pb.TranslateRequest(texts=each.texts, options=options, glossaries=[GLOSSARY]) for each in free]
    base, base_listed = "free, of references", "free, of the list"
    found = {
        base: Case(base, free),
        "terms of references in every sentence": Case(base, requests_of(mined, options, _terms)),
        "100 terms, none matches": Case(base, requests_of(mined, options, lambda _: others)),
        f"glossary of {entries:,} entries, none matches": Case(base, named, large),
    }
    if listed:
        found[base_listed] = Case(base_listed, requests_of(listed, options, lambda _: []))
        found["an unusual term in every sentence"] = Case(base_listed, requests_of(listed, options, _terms))
    return found


def _terms(sentence: Sentence) -> list[pb.Term]:
    return [pb.Term(source=each.source, target=each.target) for each in sentence.terms]


async def translate_all(translator: Translator, case: Case) -> list[pb.TextResult]:
    """Return the results of all requests of a case, in their order."""
    room = asyncio.Semaphore(IN_PROGRESS)

    async def translated(request: pb.TranslateRequest) -> pb.TextResult:
        async with room:
            return (await translator.translate(request, stores=case.stores)).results[0]

    return list(await asyncio.gather(*map(translated, case.requests)))


async def measure(translator: Translator, cases: Mapping[str, Case], rounds: int) -> list[Row]:
    """Return a row for each case."""
    results = {name: await translate_all(translator, case) for name, case in cases.items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            begin = time.process_time()
            await translate_all(translator, case)
            seconds[name].append(time.process_time() - begin)
    rows = []
    for name, case in cases.items():
        shares = [free / own for free, own in zip(seconds[case.base], seconds[name], strict=True)]
        means = [term.means for result in results[name] for term in result.terms]
        rows.append(
            {
                "case": name,
                "sentences": len(case.requests),
                "terms": len(means),
                "repaired or constrained": sum(each > pb.TERM_MEANS_FREE for each in means),
                "missed": means.count(pb.TERM_MEANS_MISSED),
                "CPU ms a sentence": round(1000 * statistics.median(seconds[name]) / len(case.requests), 3),
                "share of free throughput, %": round(100 * statistics.median(shares), 1),
            }
        )
    return rows


def main(
    model: Annotated[Path, typer.Argument(help="A bundle whose model has attention.")],
    source: Annotated[Path, typer.Argument(help="Sentences, one a line, plain or packed.")],
    target: Annotated[Path, typer.Argument(help="Their translations, from which terms are mined.")],
    listed: Annotated[Path | None, typer.Option(help="Sentences with a term each, see tests/data/README.md.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Sentences with terms from references.")] = 300,
    terms: Annotated[int, typer.Option(min=1, help="Terms of each of them.")] = 2,
    entries: Annotated[int, typer.Option(min=1, help="Entries of the glossary of which none matches.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which CPU time is measured.")] = 7,
    results: ToolResults = None,
) -> None:
    """Print what terms cost, greedily and with beam search, and save it if there is a folder."""
    with LocalTranslator(model) as local:
        mined = [each.sentence for each in mine(local, list(read_parallel(source, target)), count=count, terms=terms)]
    given = [] if listed is None else [each.sentence for each in read(listed)]
    translator = load_translator(open_bundle(model), LoadOptions(limits=LIMITS))
    rows = []
    for beam_size in (1, 4):
        cases = cases_of(mined, given, entries, beam_size)
        found = asyncio.run(measure(translator, cases, rounds))
        rows += [{"search": search_name(beam_size), **row} for row in found]
    translator.engine.stop(0)
    show(rows)
    keep("term-costs", rows, results, rounds=rounds, terms=terms, entries=entries)


if __name__ == "__main__":
    typer.run(main)
