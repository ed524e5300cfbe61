"""Gates share translations, which are those of a search for each gate, and keep one precision in memory."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from lingon.bundle import Bundle, Precision, write_bundle
from lingon.export.gates.runners import Runners
from lingon.export.gates.translations.decode import engine_search
from lingon.export.gates.translations.searches import Searches
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.serving.runtime.device import CPU
from tests.support.multilingual_bundles import tokenizer_model
from tests.support.random_models import manifest_of, random_model, random_pairs, random_runner, random_sources


@pytest.mark.parametrize("search", [(1, 0.0), (4, 1.0), (4, 0.0)])
def test_translations_that_are_shared_are_those_of_a_search_of_their_own(search: tuple[int, float]) -> None:
    runner, sources = random_runner(), random_sources(12)
    shared = Searches({"fp32": runner}, "fp32", sources)
    several = shared.hypotheses(search, 5, search[0])
    best, fewer = shared.best(search, 12), shared.best(search, 3)
    assert several == engine_search(runner, sources[:5], *search, num_hypotheses=search[0])
    assert best == [first for first, *_ in engine_search(runner, sources, *search)]
    assert fewer == best[:3]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    model, weights = random_model(), WeightFiles()
    built = {name: build(model, name, weights, random_pairs(5), shortlist=False) for name in ("fp32", "int8")}
    files = {"tokenizer.model": tokenizer_model(), **weight_files(weights)}
    for each in built.values():
        files |= each.graphs
    precisions = {name: Precision(CPU, "passed", each.reads) for name, each in built.items()}
    manifest = replace(manifest_of(model), precisions=precisions)
    return write_bundle(tmp_path_factory.mktemp("both") / "1", manifest, files)


def test_graphs_are_kept_until_those_of_another_precision_are_read(bundle: Bundle) -> None:
    runners = Runners(bundle, ["fp32", "int8"])
    kept = weakref.ref(runners["fp32"].scorer)
    assert runners["fp32"].scorer is kept()
    assert runners.only(["fp32"])["fp32"].scorer is kept()
    assert runners["int8"].manifest == bundle.manifest
    gc.collect()
    assert kept() is None
    assert list(runners.only(["fp32"])) == ["fp32"]
    with pytest.raises(KeyError):
        runners.only(["fp32"])["int8"]
