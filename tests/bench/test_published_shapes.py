"""The workloads in the shapes of published models: every engine gives the sources, so that lengths are real."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lingon.bench.copying import CopyingShape, copying_transformer
from lingon.bench.decode import DecodeOptions, run
from lingon.bench.engines.base import Cell, Setting
from lingon.bench.engines.conversion import shortlist_of
from lingon.bench.engines.worker import EngineSetting, unavailable_reason
from lingon.bench.published_shapes import (
    PUBLISHED,
    QUICK,
    published_workload,
    zipf_pieces,
    zipf_shortlist,
    zipf_sources,
)
from lingon.bench.workloads import Workload
from lingon.bundle.store import open_bundle
from lingon.errors import SettingsError
from lingon.fetching.catalogue import packaged
from lingon.text import BOS, EOS, UNK

STUDENTS = {"tiny": "tiny", "base-memory": "base-memory", "student-base": "base"}  # with the names of the catalogue
SENTENCES = 8


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tiny(cache: Path) -> Workload:
    return published_workload(cache, "tiny", QUICK["tiny"], SENTENCES)


@pytest.fixture(scope="module")
def opus(cache: Path) -> Workload:
    return published_workload(cache, "opus", QUICK["opus"], SENTENCES)


@pytest.fixture(scope="module")
def m2m(cache: Path) -> Workload:
    return published_workload(cache, "m2m", QUICK["m2m"], SENTENCES)


ENGINES = [
    ("lingon", "fp32", False),
    ("lingon", "int8", False),
    ("lingon", "int8", True),
    ("fxtranslate", "int8", False),
    ("ctranslate2", "int8", True),
]


@pytest.mark.parametrize("shortlist", [False, True])
@pytest.mark.parametrize(
    ("engine", "precision", "of_twin"), [pytest.param(*each, marks=pytest.mark.peer) for each in ENGINES]
)
def test_every_engine_copies_the_sources_of_a_student(
    tiny: Workload, tmp_path: Path, engine: str, precision: str, of_twin: bool, shortlist: bool
) -> None:
    module = importlib.import_module(f"lingon.bench.engines.{engine}")
    if reason := module.unavailable_reason():
        pytest.skip(reason)
    assert tiny.twin is not None
    bundle = open_bundle(tiny.twin if of_twin else tiny.bundle)
    module.prepare(bundle, tmp_path)
    loaded = module.load(
        bundle.folder if engine == "lingon" else tmp_path,
        Setting(precision=precision, threads=1),  # type: ignore[arg-type]
    )
    found = loaded.translate(tiny.sources, Cell(workload="tiny", batch=4, shortlist=shortlist))
    assert found == [list(source[:-1]) for source in tiny.sources]


def test_the_students_have_a_twin_for_engines_without_ssru_and_opus_mt_needs_none(
    tiny: Workload, opus: Workload
) -> None:
    assert tiny.twin is not None
    assert opus.twin is None
    others = [EngineSetting("transformers", Setting()), EngineSetting("fxtranslate", Setting(precision="int8"))]
    able = [
        [unavailable_reason(each, open_bundle(folder)) is None for each in others]
        for folder in (tiny.bundle, tiny.twin, opus.bundle)
    ]
    assert able == [[False, True], [True, False], [True, False]]


@pytest.mark.parametrize("name", STUDENTS)
def test_the_shapes_of_students_are_in_the_catalogue(name: str) -> None:
    shape = PUBLISHED[name]
    text = f"{shape.dim} wide, {shape.encoder_layers}+{shape.decoder_layers} layers, {shape.vocab:,} pieces"
    assert text in {each.shape for each in packaged().models if each.size == STUDENTS[name]}


@pytest.mark.parametrize("name", STUDENTS)
def test_students_have_a_shortlist_with_the_pieces_of_the_source(name: str) -> None:
    shape = QUICK[name]
    shortlist = zipf_shortlist(shape)
    for source in zipf_sources(shape, 4):
        assert set(source) <= set(shortlist.select(source).tolist()) < set(range(UNK + 1, shape.vocab)) | {EOS}


def test_a_sentence_in_a_published_shape_has_some_thousand_pieces_on_its_shortlist() -> None:
    shape = PUBLISHED["tiny"]
    shortlist = zipf_shortlist(shape)
    listed = [len(shortlist.select(source)) for source in zipf_sources(shape, 32)]
    assert 900 < sum(listed) / len(listed) < 1400


def test_only_students_have_a_shortlist(opus: Workload, m2m: Workload, tiny: Workload) -> None:
    assert [shortlist_of(open_bundle(each.bundle)) for each in (opus, m2m)] == [None, None]
    assert shortlist_of(open_bundle(tiny.bundle)) is not None


def test_pieces_are_drawn_by_zipfs_law_and_none_is_special() -> None:
    drawn = zipf_pieces(np.random.default_rng(0), 1000, 100_000)
    counts = np.bincount(drawn, minlength=1000)
    assert counts[: UNK + 1].sum() == 0
    assert len(counts) == 1000
    assert counts[UNK + 1] / counts[UNK + 10] == pytest.approx(math.log(2) / math.log(1.1), rel=0.1)


def test_more_sources_begin_with_the_fewer_and_have_mixed_lengths() -> None:
    shape = PUBLISHED["tiny"]
    sources = zipf_sources(shape, 64)
    assert zipf_sources(shape, 8) == sources[:8]
    assert all(source[-1] == EOS and min(source) >= EOS for source in sources)
    lengths = [len(source) for source in sources]
    assert min(lengths) < 15 < 20 < sum(lengths) / len(lengths) < 30 < 50 < max(lengths)


def test_the_facts_say_how_many_outputs_are_their_source(tiny: Workload, opus: Workload, m2m: Workload) -> None:
    for workload in (tiny, opus, m2m):
        assert workload.facts["outputs equal to their source"] == workload.facts["sentences measured"] == 32


@pytest.mark.parametrize("shape", [PUBLISHED["smallest"], replace(PUBLISHED["tiny"], vocab=2000)])
@pytest.mark.parametrize("cell", ["ssru", "attention"])
def test_the_own_piece_is_far_above_all_others_at_every_position(cell: str, shape: CopyingShape) -> None:
    shape = replace(shape, decoder_cell=cell)  # type: ignore[arg-type]
    model = copying_transformer(shape)
    for source in zipf_sources(shape, 64):
        ids = torch.tensor([source])
        with torch.inference_mode():
            logits = model(ids, torch.tensor([len(source)]), torch.tensor([[BOS, *source[:-1]]]))[0]
        best = logits.topk(2).values
        assert logits.argmax(-1).tolist() == list(source)
        assert float((best[:, 0] - best[:, 1]).min()) > 2.5


def test_a_run_measures_a_student_beside_its_twin(tmp_path: Path) -> None:
    options = DecodeOptions(
        workloads=("tiny",),
        engines=("lingon", "transformers"),
        precisions=("fp32",),
        batches=(8,),
        beam_sizes=(1,),
        sentences=3,
        quick=True,
    )
    run(options, tmp_path / "results", tmp_path / "cache", resume=False)
    (path,) = (tmp_path / "results").glob("*-decode.json")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert {(row["engine"], row["of_twin"], row["agreement"]) for row in rows} == {
        ("lingon", False, 1.0),
        ("transformers", True, 1.0),
    }
    floors = {row["engine"]: row["floor_ms"] for row in rows if not row["shortlist"]}
    assert floors["lingon"] < floors["transformers"]  # an SSRU has fewer products than self-attention


def test_a_number_of_sentences_is_at_least_1() -> None:
    with pytest.raises(SettingsError, match="--sentences must be at least 1, got 0"):
        DecodeOptions(workloads=("tiny",), sentences=0)
