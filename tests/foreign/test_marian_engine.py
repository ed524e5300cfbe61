"""Marian's own engine and Lingon read the same files, and find the same translations.

With LINGON_REFERENCE_TABLE=1 the results become rows of the table of reference engines in the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lingon.export.settings import ExportSettings, ExportTexts
from lingon.export.shortlist import ShortlistSettings
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported
from lingon.importers.toolkits.marian import MarianEngine
from lingon.serving.in_process import LocalTranslator
from lingon.serving.runtime.device import FP32_NATIVE
from lingon.training.corpus import Pair
from lingon.training.search import Hypothesis, SearchSettings, translate
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.foreign_clients import NODE_CLIENT
from tests.support.marian_engine import marian_beam, marian_candidates
from tests.support.marian_models import (
    FORMS,
    FREQUENT,
    LINES,
    TRAINED,
    Marian,
    MarianFiles,
    in_8_bits,
    measured_alphas,
    written,
)
from tests.support.repository import scaled
from tests.support.transformers_kept import write_rows

pytestmark = pytest.mark.foreign("node")

ALL = {**FORMS, **TRAINED}
FEW = ["pre-norm", "SSRU, pre-norm", "untied, two vocabularies"]
"""The forms of `make test`."""

TEXTS = LINES[:: scaled(4, 1)]
LEAST_VARIED = 0.15  # of the texts: with a few translations for all, equal ones would say nothing
BEAM = 4
IN_8_BITS = "SSRU, post-norm, trained to copy"
TWO_IN_8_BITS = "target tied, two vocabularies, trained to copy"


@pytest.fixture(scope="module")
def engine() -> Iterator[MarianEngine]:
    with MarianEngine(NODE_CLIENT) as found:
        yield found


class Results:
    """How many lines were equal, of each form and search."""

    def __init__(self, reference_engine: str) -> None:
        self._reference_engine, self._found = reference_engine, list[dict[str, Any]]()

    def add(self, form: str, search: str, ours: Sequence[str], theirs: Sequence[str]) -> int:
        """Count a comparison; return the number of equal lines."""
        equal = sum(pair[0] == pair[1] for pair in zip(ours, theirs, strict=True))
        row = {"family": "Marian", "form": form, "reference_engine": self._reference_engine, "search": search}
        self._found.append({**row, "equal": equal, "of": len(theirs)})
        return equal

    def write(self) -> None:
        """Write the table."""
        write_rows("marian", self._found)


@pytest.fixture(scope="module")
def results(engine: MarianEngine) -> Iterator[Results]:
    found = Results(f"bergamot-translator {engine.version} (npm)")
    yield found
    found.write()


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A form by its name: the model, its files, and what is read of them; each is made once."""
    room = tmp_path_factory.mktemp("marian")

    @cache
    def made(name: str) -> tuple[Marian, MarianFiles, Imported]:
        model, files = written(ALL[name], room / name.replace(" ", "-"))
        return model, files, files.imported()

    return made


def translated(imported: Imported, beam_size: int = 1) -> tuple[list[Hypothesis], list[str]]:
    """Return what Lingon finds within the bound of Marian, as tokens and as texts."""
    settings = SearchSettings(
        beam_size=beam_size, length_penalty=1.0 if beam_size > 1 else 0.0, length_factor=2.0, length_extra=0
    )
    tokenizer = imported.checkpoint.tokenizer
    found = translate(imported.checkpoint.model, [tokenizer.encode_source(text) for text in TEXTS], settings)
    return [best for best, *_ in found], [tokenizer.decode(best.tokens) for best, *_ in found]


def forms(names: Sequence[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name in names if scaled(name in FEW, True)])


@forms(list(ALL))
def test_greedy_search_finds_the_translations_of_the_engine(
    name: str, engine: MarianEngine, model_of: Any, results: Results
) -> None:
    _, files, imported = model_of(name)
    found, ours = translated(imported)
    engine.load(files.model, files.vocabularies, length_factor=2.0)
    assert results.add(name, "greedy", ours, engine.translate(TEXTS)) == len(TEXTS)
    assert len(set(ours)) >= LEAST_VARIED * len(TEXTS)
    assert sum(best.finished for best in found) >= LEAST_VARIED * len(TEXTS)


@forms(list(ALL))
def test_the_beam_search_of_marian_finds_with_our_model_what_the_engine_finds(
    name: str, engine: MarianEngine, model_of: Any, results: Results
) -> None:
    """The search of Lingon, which does not make the beam narrower, finds others in some texts: they are counted."""
    _, files, imported = model_of(name)
    engine.load(files.model, files.vocabularies, beam_size=BEAM, length_factor=2.0)
    theirs, tokenizer = engine.translate(TEXTS), imported.checkpoint.tokenizer
    encoded = [tokenizer.encode_source(text) for text in TEXTS]
    tokens = [marian_beam(imported.checkpoint.model, imported.source, ids, BEAM) for ids in encoded]
    assert results.add(name, "beam 4, by Marian's rules", [tokenizer.decode(each) for each in tokens], theirs) == len(
        TEXTS
    )
    results.add(name, "beam 4", translated(imported, BEAM)[1], theirs)


@forms([IN_8_BITS, TWO_IN_8_BITS])
def test_a_model_in_8_bits_is_what_the_engine_computes(
    name: str, engine: MarianEngine, model_of: Any, results: Results
) -> None:
    """What the integers stand for is the same model. In 8 bits, the engine rounds the inputs of products too."""
    model, files, imported = model_of(name)
    packed = in_8_bits(model, files, measured_alphas(imported, model))
    ours = translated(packed.imported())[1]
    assert packed.plain is not None
    engine.load(packed.plain, packed.vocabularies, length_factor=2.0)
    form = f"{name}, file of 8-bit integers"
    assert results.add(f"{form}, computed in float32", "greedy", ours, engine.translate(TEXTS)) == len(TEXTS)
    engine.load(packed.model, packed.vocabularies, length_factor=2.0, quantised=True)
    assert results.add(f"{form}, computed in 8 bits", "greedy", ours, engine.translate(TEXTS)) >= 0.8 * len(TEXTS)


@forms([IN_8_BITS])
def test_a_shortlist_is_what_the_engine_reads(
    name: str, engine: MarianEngine, model_of: Any, results: Results, tmp_path: Path
) -> None:
    """The engine fills the candidates of a text up to a multiple of 8; without these, some texts of a bundle differ."""
    marian, files, imported = model_of(name)
    packed = in_8_bits(marian, files, measured_alphas(imported, marian), listed=40)
    found = packed.imported()
    model, tokenizer = found.checkpoint.model, found.checkpoint.tokenizer
    tokens = []
    for text in TEXTS:
        ids = tokenizer.encode_source(text)
        candidates = marian_candidates(found.source, ids, FREQUENT)
        tokens.append(marian_beam(model, found.source, ids, 1, candidates=candidates))
    assert packed.plain is not None
    engine.load(packed.plain, packed.vocabularies, shortlist=packed.shortlist, length_factor=2.0)
    theirs, ours = engine.translate(TEXTS), [tokenizer.decode(each) for each in tokens]
    assert results.add(f"{name}, shortlist", "greedy, by Marian's rules", ours, theirs) == len(TEXTS)
    assert equal(by_bundle(found, tmp_path, "fp32", shortlist=True), theirs) >= 0.8 * len(TEXTS)


@pytest.mark.parametrize("precision", ["fp32", pytest.param(FP32_NATIVE, marks=pytest.mark.native)])
@forms(["pre-norm, trained to copy", "SSRU, pre-norm, trained to copy"])
def test_a_bundle_finds_the_translations_of_the_engine(
    name: str, precision: str, engine: MarianEngine, model_of: Any, tmp_path: Path
) -> None:
    """A server translates two sentences one by one, and a text whose translation repeats itself once more."""
    _, files, imported = model_of(name)
    ours = by_bundle(imported, tmp_path, precision, shortlist=False)
    engine.load(files.model, files.vocabularies)
    assert equal(ours, engine.translate(TEXTS)) >= 0.95 * len(TEXTS)


def equal(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """Return the number of equal texts but for blanks at their ends, which no bundle answers."""
    return sum(pair[0].strip() == pair[1].strip() for pair in zip(ours, theirs, strict=True))


def by_bundle(imported: Imported, room: Path, precision: str, *, shortlist: bool) -> list[str]:
    """Return the translations of a bundle that is made of a model."""
    settings = ExportSettings(
        precisions=(precision,),
        shortlist=ShortlistSettings() if shortlist else None,
        shortlist_by_default=shortlist,
        parity_sentences=5,
        gate_sentences=30,
    )
    texts = ExportTexts([Pair(text, "") for text in TEXTS[:30]])
    folder = room / "models" / "en-de"
    bundle = pipeline.export_imported(imported, folder, texts, settings, lambda line: None)
    assert (bundle.manifest.shortlist is not None) == shortlist
    with LocalTranslator(bundle.folder, device="cpu", precision=precision) as translator:
        options = pb.DecodingOptions(shortlist=shortlist, beam_size=1)
        answer = translator.translate(pb.TranslateRequest(texts=TEXTS, options=options))
    return [each.hypotheses[0].text for each in answer.results]
