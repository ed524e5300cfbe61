"""A load on demand of a real bundle: same translations as a whole load, the same checks, a part of them later."""

from __future__ import annotations

import asyncio
import mmap
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lingon.bundle.golden import Golden
from lingon.bundle.names import GOLDEN, MANIFEST
from lingon.bundle.store import Bundle, open_bundle, with_checksums
from lingon.errors import BundleError, DamagedBundle
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.runtime.device import NATIVE
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.shipped_model import bundle

TEXTS = ["Tom lives in Boston.", "The old man is at the station."]
WHOLE = LoadOptions(device="cpu", precision="fp32", engines=1, threads=1, golden=True)
ON_DEMAND = replace(WHOLE, on_demand=True)


@pytest.fixture
def copied(tmp_path: Path) -> Bundle:
    """A copy of the shipped bundle that a test may change."""
    shutil.copytree(bundle().folder, tmp_path / "en-de")
    return open_bundle(tmp_path / "en-de")


def translations(translator: Translator) -> Iterator[bytes]:
    request = pb.TranslateRequest(texts=TEXTS, options=pb.DecodingOptions(return_alignment=True))
    reply = asyncio.run(translator.translate(request))
    return (result.hypotheses[0].SerializeToString(deterministic=True) for result in reply.results)


def changed(bundle: Bundle, name: str, content: bytes) -> Bundle:
    """Return a bundle with another file, which its manifest lists."""
    (bundle.folder / name).write_bytes(content)
    files = {each: (bundle.folder / each).read_bytes() for each in bundle.manifest.checksums}
    manifest = with_checksums(bundle.folder, bundle.manifest, files)
    (bundle.folder / MANIFEST).write_bytes(manifest.to_bytes())
    return open_bundle(bundle.folder)


def test_a_load_on_demand_translates_and_aligns_as_a_whole_load() -> None:
    found = []
    beside_others = replace(ON_DEMAND, low_priority=True, one_thread=True)
    for options in (WHOLE, ON_DEMAND, beside_others, replace(ON_DEMAND, proven=True)):
        translator = load_translator(bundle(), options)
        try:
            found.append(list(translations(translator)))
            list(translator.complete())
            found.append(list(translations(translator)))
        finally:
            translator.engine.stop(0)
    assert all(each == found[0] for each in found)


def test_weights_are_mapped_and_their_checksum_is_verified(copied: Bundle) -> None:
    precision, weights = "fp32", copied.manifest.precisions["fp32"].weights[0]
    _, files = copied.graphs(precision, "encoder.onnx")
    assert all(isinstance(content, mmap.mmap) for content in files.values())
    path = copied.folder / "weights" / weights
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedBundle, match="was altered"):
        load_translator(copied, ON_DEMAND)


def test_weights_that_are_too_short_for_a_session_are_named_as_altered(copied: Bundle) -> None:
    path = copied.folder / "weights" / copied.manifest.precisions["fp32"].weights[0]
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DamagedBundle, match="was altered"):
        load_translator(copied, ON_DEMAND)


def test_a_golden_sentence_that_is_translated_otherwise_ends_a_load_on_demand(copied: Bundle) -> None:
    golden = Golden.from_bytes(copied.read(GOLDEN), copied.folder / GOLDEN)
    others = {name: ("other", *texts[1:]) for name, texts in golden.translations.items()}
    wrong = changed(copied, GOLDEN, replace(golden, translations=others).to_bytes())
    with pytest.raises(BundleError, match=r"sentence 1 of .* is translated otherwise"):
        load_translator(wrong, ON_DEMAND)
    load_translator(wrong, replace(ON_DEMAND, proven=True)).engine.stop(0)


@pytest.mark.native
def test_a_scorer_beside_other_models_has_one_thread_and_finds_the_same() -> None:
    ids, lengths = np.arange(5, 45).reshape(2, 20), np.array([20, 20])
    found = []
    for beside in (False, True):
        runner = load_runner(bundle(), NATIVE, 2, 1, low_priority=beside, on_demand=beside)
        assert runner.scorer.get_session_options().intra_op_num_threads == (1 if beside else 2)
        found.append([each.log_probs.tolist() for each in runner.score(ids, lengths, ids, lengths)])
    assert found[0] == found[1]


@pytest.mark.parametrize("low_priority", [False, True])
def test_all_golden_sentences_are_checked_after_a_load_on_demand(copied: Bundle, *, low_priority: bool) -> None:
    golden = Golden.from_bytes(copied.read(GOLDEN), copied.folder / GOLDEN)
    others = {name: (*texts[:-1], "other") for name, texts in golden.translations.items()}
    wrong = changed(copied, GOLDEN, replace(golden, translations=others).to_bytes())
    translator = load_translator(wrong, replace(ON_DEMAND, low_priority=low_priority))
    try:
        with pytest.raises(BundleError, match=rf"sentence {len(golden.sentences)} of .* is translated otherwise"):
            list(translator.complete())
    finally:
        translator.engine.stop(0)


def test_a_scorer_that_does_not_load_fails_the_checks_after_a_load_on_demand(copied: Bundle) -> None:
    broken = changed(copied, "fp32/scorer.onnx", b"no graph")
    translator = load_translator(broken, ON_DEMAND)
    try:
        with pytest.raises(BundleError, match=r"scorer\.onnx: onnxruntime does not load it"):
            list(translator.complete())
    finally:
        translator.engine.stop(0)
    with pytest.raises(BundleError, match=r"scorer\.onnx"):
        load_translator(broken, WHOLE)


def test_a_file_that_is_missing_not_listed_or_a_link_ends_a_load_on_demand(copied: Bundle) -> None:
    (copied.folder / "more.bin").write_bytes(b"")
    with pytest.raises(DamagedBundle, match="does not list it"):
        load_translator(copied, ON_DEMAND)
    (copied.folder / "more.bin").unlink()
    (copied.folder / "MODEL_CARD.md").unlink()  # which no load reads
    with pytest.raises(DamagedBundle, match=r"MODEL_CARD\.md: No such file"):
        load_translator(copied, ON_DEMAND)
    (copied.folder / "MODEL_CARD.md").symlink_to(copied.folder / MANIFEST)
    with pytest.raises(DamagedBundle, match="is a link"):
        load_translator(copied, ON_DEMAND)
