"""The workloads of the decode benchmark: random weights whose outputs vary, and real sentences."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lingon.bench.synthetic import NEVER_GENERATED, TARGET_TOKENS, Shape, base_workload, outputs, random_transformer
from lingon.bench.synthetic import random_sources as base_sources
from lingon.bench.workloads import Workload, sample_file, shipped_workloads
from lingon.bundle.manifest import Limits
from lingon.bundle.store import is_bundle, open_bundle, write_bundle
from lingon.errors import SettingsError
from lingon.export.gates_text import decode_all
from lingon.files import read_parallel
from lingon.serving.decoding.job import Options
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.text import EOS
from lingon.training.config import TokenizerSettings
from lingon.training.corpus import Pair
from lingon.training.search import SearchSettings, translate
from lingon.training.tokenizer import train_tokenizer
from tests.support.random_models import manifest_of, random_model, random_sources
from tests.support.repository import ROOT

DATA = ROOT / "tests" / "data"
SHAPE = Shape(layers=2, dim=32, heads=2, ffn=64, vocab=200, positions=64)
SMALLEST = Shape(layers=1, dim=16, heads=1, ffn=16, vocab=60, positions=64)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def workload(cache: Path) -> Workload:
    return base_workload(cache, SHAPE, sentences=12)


@pytest.fixture(scope="module")
def runner(workload: Workload) -> OnnxRunner:
    return load_runner(open_bundle(workload.bundle), "fp32", threads=1)


def decoded(runner: OnnxRunner, workload: Workload, *, beam_size: int = 1, shortlist: bool = False) -> list[list[int]]:
    engine = Engine(runner, EngineLimits())
    engine.start()
    options = Options(beam_size=beam_size, max_output_tokens=TARGET_TOKENS, shortlist=shortlist)
    try:
        outcomes = decode_all(engine, workload.sources, [options] * len(workload.sources))
    finally:
        engine.stop(timeout=0)
    return [list(outcome[0].tokens) for outcome in outcomes if isinstance(outcome, tuple)]


def test_base_sources_have_25_tokens_and_end():
    sources = base_sources(SHAPE, 128)
    assert {len(source) for source in sources} == {25}
    assert {source[-1] for source in sources} == {EOS}
    assert not {token for source in sources for token in source[:-1]} & set(NEVER_GENERATED)
    assert len(set(sources)) == 128


def test_more_base_sources_begin_with_the_fewer():
    assert base_sources(SHAPE, 20)[:7] == base_sources(SHAPE, 7)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_base_outputs_have_exactly_30_tokens_without_an_option_for_the_length(runner, workload, beam_size):
    found = decoded(runner, workload, beam_size=beam_size)
    assert [len(tokens) for tokens in found] == [30] * 12
    assert not {token for tokens in found for token in tokens} & set(NEVER_GENERATED)


def test_special_pieces_stay_far_below_the_best_for_any_target():
    model, random = random_transformer(SHAPE), np.random.default_rng(0)
    sources, targets = (torch.from_numpy(random.integers(4, SHAPE.vocab, (8, 30))) for _ in range(2))
    with torch.inference_mode():
        logits = model(sources, torch.full((8,), 30), targets)
    assert float((logits.max(-1).values - logits[..., NEVER_GENERATED].max(-1).values).min()) > 10


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_engine_finds_the_outputs_on_which_the_facts_were_measured(runner, workload, beam_size):
    expected = outputs(random_transformer(SHAPE), workload.sources, beam_size, TARGET_TOKENS)
    assert decoded(runner, workload, beam_size=beam_size) == expected.tokens.tolist()


def test_outputs_of_a_random_model_vary_and_its_beams_diverge():
    found = outputs(
        random_transformer(Shape(layers=2, dim=64, heads=2, ffn=128, vocab=400)), base_sources(SHAPE, 16), 4, 30
    )
    assert found.distinct >= 5  # the full shape: 25
    assert found.copying >= 0.3


def test_measured_outputs_are_those_of_the_reference_search():
    model, sources = random_model(), random_sources(6)
    reference = [found[0].tokens for found in translate(model, sources, SearchSettings(beam_size=1))]
    found = outputs(model, sources, 1, 6).tokens.tolist()
    for tokens, expected in zip(found, reference, strict=True):
        assert tuple(tokens[: len(expected)]) == expected[:6]


def test_greedy_search_copies_no_past_and_has_a_margin_for_every_step():
    greedy = outputs(random_transformer(SHAPE), base_sources(SHAPE, 4), 1, 8)
    assert greedy.copying == 0
    assert greedy.margins.shape == (8, 4)


def test_the_base_bundle_is_complete_and_has_all_cpu_precisions_and_a_shortlist(workload):
    bundle = open_bundle(workload.bundle)
    bundle.verify()
    assert set(bundle.manifest.precisions) == {"fp32", "int8", "int8-native", "fp32-native"}
    assert load_runner(bundle, "int8", threads=1).shortlist is not None


def test_with_the_shortlist_all_base_outputs_come_from_the_same_candidates(runner, workload):
    assert runner.shortlist is not None
    sets = [runner.shortlist.select(source).tolist() for source in workload.sources]
    assert len(sets[0]) == 50  # a quarter of the vocabulary
    assert all(some == sets[0] for some in sets)
    found = {token for tokens in decoded(runner, workload, shortlist=True) for token in tokens}
    assert found <= set(sets[0]) - {EOS}


def test_a_base_bundle_is_written_once(cache, workload):
    before = (workload.bundle / "manifest.json").stat().st_mtime_ns
    again = base_workload(cache, SHAPE, sentences=4)
    assert again.bundle == workload.bundle
    assert (workload.bundle / "manifest.json").stat().st_mtime_ns == before
    assert (again.sources, again.facts) == (workload.sources[:4], workload.facts)


def test_a_base_bundle_of_other_code_is_replaced_and_other_shapes_are_kept(cache, workload):
    first = base_workload(cache, SMALLEST, sentences=1).bundle
    assert first != workload.bundle
    older = first.parent.parent
    older.rename(older.with_name("000000000000"))  # as if other code had written it
    assert base_workload(cache, SMALLEST, sentences=1).bundle == first
    assert not older.with_name("000000000000").exists()
    assert is_bundle(workload.bundle)


def test_the_facts_of_a_base_workload_are_measured(workload):
    assert workload.facts["sentences measured"] == 32
    assert all(value > 0 for value in workload.facts.values())
    assert workload.facts["share of steps with copied parents, beam 4"] <= 1


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that reads at most 100 tokens; a workload needs only its manifest and tokenizer."""
    pairs = [Pair(*lines) for lines in read_parallel(DATA / "tatoeba.en", DATA / "tatoeba.de")]
    tokenizer = train_tokenizer(pairs, TokenizerSettings(vocab_size=400, character_coverage=1.0))
    manifest = replace(manifest_of(random_model()), limits=Limits(100, 256, 2.0, 16, 8))
    return write_bundle(tmp_path_factory.mktemp("shipped") / "en-de" / "1", manifest, tokenizer.files()).folder.parent


def test_without_data_the_shipped_workload_has_the_sample_sentences(shipped):
    (workload,) = shipped_workloads([shipped], sentences=100)
    assert workload.name == "shipped tatoeba"
    assert len(workload.sources) == len(workload.references) == 100
    assert workload.language == "de"
    assert all(source[-1] == EOS for source in workload.sources)
    assert workload.exact_length is None


def write_sets(folder: Path, source: list[str], target: list[str]) -> None:
    for language, lines in (("en", source), ("de", target)):
        content = "".join(f"{line}\n" for line in lines).encode()
        (folder / f"tatoeba.en-de.test.{language}").write_bytes(content)
        (folder / f"ntrex.en-de.test.{language}.gz").write_bytes(gzip.compress(content))


def test_sentences_longer_than_the_model_reads_are_left_out_and_counted(shipped, tmp_path):
    write_sets(tmp_path, ["Hello.", "word " * 300, "Good  night."], ["Hallo.", "Wort", "Gute  Nacht."])
    workloads = shipped_workloads([shipped], tmp_path)
    assert [workload.name for workload in workloads] == ["shipped tatoeba", "shipped ntrex"]
    assert [(len(workload.sources), workload.left_out) for workload in workloads] == [(2, 1)] * 2
    assert workloads[0].references == ("Hallo.", "Gute Nacht.")


def test_a_few_sentences_are_taken_at_regular_intervals(shipped, tmp_path):
    lines = [f"{number}." for number in range(90)]
    write_sets(tmp_path, lines, lines)
    workload = shipped_workloads([shipped], tmp_path, sentences=3)[0]
    assert workload.references == ("0.", "30.", "60.")


def test_several_bundles_have_a_workload_each_of_every_test_set(shipped, tmp_path):
    write_sets(tmp_path, ["Hello."], ["Hallo."])
    for suffix in ("en", "de"):
        (tmp_path / f"tatoeba.en-de.test.{suffix}").rename(tmp_path / f"multi30k.en-de.test2016.{suffix}")
    opened = open_bundle(shipped)
    other = replace(opened.manifest, name="other")
    files = {name: opened.read(name) for name in opened.manifest.checksums}
    second = write_bundle(tmp_path / "other" / "1", other, files).folder.parent
    found = shipped_workloads([shipped, second], tmp_path, test_sets=["ntrex", "multi30k.test2016"])
    names = ["random ntrex", "random multi30k.test2016", "other ntrex", "other multi30k.test2016"]
    assert [workload.name for workload in found] == [f"shipped {name}" for name in names]
    assert [workload.bundle.parent for workload in found] == [shipped, shipped, second, second]


def test_bundles_of_one_name_and_test_sets_without_data_are_refused(shipped, tmp_path):
    with pytest.raises(SettingsError, match="--model must be given bundles of different names, got random twice"):
        shipped_workloads([shipped, shipped])
    with pytest.raises(SettingsError, match="--test-set ntrex needs --data FOLDER"):
        shipped_workloads([shipped], test_sets=["ntrex"])


def test_the_error_names_a_missing_test_set(shipped, tmp_path):
    with pytest.raises(SettingsError, match=r"has neither tatoeba\.en-de\.test\.en nor tatoeba\.en-de\.test\.en\.gz"):
        shipped_workloads([shipped], tmp_path)


def test_a_set_without_a_short_enough_sentence_is_rejected(shipped, tmp_path):
    write_sets(tmp_path, ["word " * 300], ["Wort"])
    with pytest.raises(SettingsError, match="no sentence has at most 100 tokens"):
        shipped_workloads([shipped], tmp_path)


def test_a_workload_without_sentences_is_rejected(shipped):
    with pytest.raises(SettingsError, match="--sentences must be at least 1, got 0"):
        shipped_workloads([shipped], sentences=0)


def test_without_the_repository_the_error_asks_for_data(tmp_path):
    with pytest.raises(SettingsError, match=r"tatoeba\.en: no sample sentences here, .*; pass --data FOLDER"):
        sample_file("en", tmp_path)
