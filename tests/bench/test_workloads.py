"""The works of the decode benchmark: drawn weights whose outputs are worth decoding, real sentences as they are."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lingon.bench.workloads.output_statistics import outputs
from lingon.bench.workloads.random_weights import NEVER, Shape, draw
from lingon.bench.workloads.shipped import shipped_works
from lingon.bench.workloads.synthetic import TARGET_TOKENS, base_work, drawn_sources
from lingon.bench.workloads.workload import Work
from lingon.bundle import Limits, is_bundle, open_bundle, write_bundle
from lingon.errors import SettingsError
from lingon.export.decode import decode_all
from lingon.lines import read_parallel
from lingon.serving.decoding.job import Options
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.policy import EngineLimits
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.text import EOS
from lingon.training.config import TokenizerSettings
from lingon.training.corpus import Pair
from lingon.training.search import SearchSettings, translate
from lingon.training.vocabulary import train_tokenizer
from tests.support.random_models import manifest_of, random_model, random_sources
from tests.support.repository import ROOT

DATA = ROOT / "tests" / "data"
SHAPE = Shape(layers=2, dim=32, heads=2, ffn=64, vocab=200, positions=64)
SMALLEST = Shape(layers=1, dim=16, heads=1, ffn=16, vocab=60, positions=64)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def work(cache: Path) -> Work:
    return base_work(cache, SHAPE, sentences=12)


@pytest.fixture(scope="module")
def runner(work: Work) -> OnnxRunner:
    return load_runner(open_bundle(work.bundle), "fp32", threads=1)


def decoded(runner: OnnxRunner, work: Work, *, beam_size: int = 1, shortlist: bool = False) -> list[list[int]]:
    engine = Engine(runner, EngineLimits())
    engine.start()
    options = Options(beam_size=beam_size, max_output_tokens=TARGET_TOKENS, shortlist=shortlist)
    try:
        outcomes = decode_all(engine, work.sources, [options] * len(work.sources))
    finally:
        engine.stop(timeout=0)
    return [list(outcome[0].tokens) for outcome in outcomes if isinstance(outcome, tuple)]


def test_base_sources_have_25_tokens_and_end():
    sources = drawn_sources(SHAPE, 128)
    assert {len(source) for source in sources} == {25}
    assert {source[-1] for source in sources} == {EOS}
    assert not {token for source in sources for token in source[:-1]} & set(NEVER)
    assert len(set(sources)) == 128


def test_more_base_sources_begin_with_the_fewer():
    assert drawn_sources(SHAPE, 20)[:7] == drawn_sources(SHAPE, 7)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_base_outputs_have_exactly_30_tokens_without_an_option_that_says_so(runner, work, beam_size):
    found = decoded(runner, work, beam_size=beam_size)
    assert [len(tokens) for tokens in found] == [30] * 12
    assert not {token for tokens in found for token in tokens} & set(NEVER)


def test_special_pieces_stay_far_below_the_best_wherever_a_target_leads():
    model, random = draw(SHAPE), np.random.default_rng(0)
    sources, targets = (torch.from_numpy(random.integers(4, SHAPE.vocab, (8, 30))) for _ in range(2))
    with torch.inference_mode():
        logits = model(sources, torch.full((8,), 30), targets)
    assert float((logits.max(-1).values - logits[..., NEVER].max(-1).values).min()) > 10


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_engine_decodes_the_base_work_as_the_search_that_measured_it(runner, work, beam_size):
    expected = outputs(draw(SHAPE), work.sources, beam_size, TARGET_TOKENS)
    assert decoded(runner, work, beam_size=beam_size) == expected.tokens.tolist()


def test_outputs_of_a_drawn_model_vary_and_its_beams_part():
    found = outputs(draw(Shape(layers=2, dim=64, heads=2, ffn=128, vocab=400)), drawn_sources(SHAPE, 16), 4, 30)
    assert found.distinct >= 5  # the full shape: 25
    assert found.copying >= 0.3


def test_measured_outputs_are_those_of_the_reference_search():
    model, sources = random_model(), random_sources(6)
    reference = [found[0].tokens for found in translate(model, sources, SearchSettings(beam_size=1))]
    found = outputs(model, sources, 1, 6).tokens.tolist()
    for tokens, expected in zip(found, reference, strict=True):
        assert tuple(tokens[: len(expected)]) == expected[:6]


def test_a_step_copies_where_a_parent_has_several_children():
    alone = outputs(draw(SHAPE), drawn_sources(SHAPE, 4), 1, 8)
    assert alone.copying == 0
    assert alone.margins.shape == (8, 4)


def test_the_base_bundle_is_whole_and_has_both_precisions_and_a_shortlist(work):
    bundle = open_bundle(work.bundle)
    bundle.verify()
    assert set(bundle.manifest.precisions) == {"fp32", "int8"}
    assert load_runner(bundle, "int8", threads=1).shortlist is not None


def test_with_the_shortlist_base_outputs_are_of_the_same_few_candidates_for_every_sentence(runner, work):
    assert runner.shortlist is not None
    sets = [runner.shortlist.select(source).tolist() for source in work.sources]
    assert len(sets[0]) == 50  # of so small a vocabulary a quarter
    assert all(some == sets[0] for some in sets)
    found = {token for tokens in decoded(runner, work, shortlist=True) for token in tokens}
    assert found <= set(sets[0]) - {EOS}


def test_a_base_work_is_written_once(cache, work):
    before = (work.bundle / "manifest.json").stat().st_mtime_ns
    again = base_work(cache, SHAPE, sentences=4)
    assert again.bundle == work.bundle
    assert (work.bundle / "manifest.json").stat().st_mtime_ns == before
    assert (again.sources, again.facts) == (work.sources[:4], work.facts)


def test_a_base_work_that_other_code_wrote_is_replaced_and_other_shapes_are_left_alone(cache, work):
    first = base_work(cache, SMALLEST, sentences=1).bundle
    assert first != work.bundle
    older = first.parent.parent
    older.rename(older.with_name("000000000000"))  # as if other code had written it
    assert base_work(cache, SMALLEST, sentences=1).bundle == first
    assert not older.with_name("000000000000").exists()
    assert is_bundle(work.bundle)


def test_the_facts_of_a_base_work_are_measured(work):
    assert work.facts["sentences measured"] == 32
    assert all(value > 0 for value in work.facts.values())
    assert work.facts["share of steps with copied parents, beam 4"] <= 1


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that reads at most 100 tokens, of which a work needs the manifest and the tokenizer alone."""
    pairs = [Pair(*lines) for lines in read_parallel(DATA / "tatoeba.en", DATA / "tatoeba.de")]
    tokenizer = train_tokenizer(pairs, TokenizerSettings(vocab_size=400, character_coverage=1.0))
    manifest = replace(manifest_of(random_model()), limits=Limits(100, 256, 2.0, 16, 8))
    return write_bundle(tmp_path_factory.mktemp("shipped") / "en-de" / "1", manifest, tokenizer.files()).folder.parent


def test_without_data_the_shipped_work_is_the_sentences_of_the_tests(shipped):
    (work,) = shipped_works(shipped, sentences=100)
    assert work.name == "shipped tatoeba"
    assert len(work.sources) == len(work.references) == 100
    assert all(source[-1] == EOS for source in work.sources)
    assert work.exact_length is None


def write_sets(folder: Path, source: list[str], target: list[str]) -> None:
    for language, lines in (("en", source), ("de", target)):
        content = "".join(f"{line}\n" for line in lines).encode()
        (folder / f"tatoeba.en-de.test.{language}").write_bytes(content)
        (folder / f"ntrex.en-de.test.{language}.gz").write_bytes(gzip.compress(content))


def test_sentences_longer_than_the_model_reads_are_left_out_and_counted(shipped, tmp_path):
    write_sets(tmp_path, ["Hello.", "word " * 300, "Good  night."], ["Hallo.", "Wort", "Gute  Nacht."])
    works = shipped_works(shipped, tmp_path)
    assert [work.name for work in works] == ["shipped tatoeba", "shipped ntrex"]
    assert [(len(work.sources), work.left_out) for work in works] == [(2, 1)] * 2
    assert works[0].references == ("Hallo.", "Gute Nacht.")


def test_few_sentences_are_taken_from_all_over_a_set(shipped, tmp_path):
    lines = [f"{number}." for number in range(90)]
    write_sets(tmp_path, lines, lines)
    work = shipped_works(shipped, tmp_path, sentences=3)[0]
    assert work.references == ("0.", "30.", "60.")


def test_a_set_that_is_missing_is_named(shipped, tmp_path):
    with pytest.raises(SettingsError, match=r"has neither tatoeba\.en-de\.test\.en nor tatoeba\.en-de\.test\.en\.gz"):
        shipped_works(shipped, tmp_path)


def test_a_set_with_no_sentence_short_enough_is_refused(shipped, tmp_path):
    write_sets(tmp_path, ["word " * 300], ["Wort"])
    with pytest.raises(SettingsError, match="no sentence has at most 100 tokens"):
        shipped_works(shipped, tmp_path)


def test_no_sentences_are_refused(shipped):
    with pytest.raises(SettingsError, match="--sentences must be at least 1, got 0"):
        shipped_works(shipped, sentences=0)
