"""What the gates of an export keep in memory, and what they compute once."""

from __future__ import annotations

import copy
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import lingon.export.gated_bundle
from lingon.bundle.store import Bundle
from lingon.errors import BundleError, ParityError
from lingon.export import gates_checkpoint
from lingon.export.gates_checkpoint import check_tensors, check_tokens, draw_grid, expected_log_probs, map_weights
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build
from lingon.export.graphs.quantisation import Calibration
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.serving.runtime.device import NATIVE
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.validation import check_bundle, check_scorer
from lingon.training.checkpoint import Checkpoint
from lingon.training.corpus import Pair
from lingon.training.models.transformer import Transformer
from lingon.training.search import SearchSettings, translate
from tests.support.full_disk import room
from tests.support.random_models import accept_any_quality, limits_of, random_model, random_pairs, random_runner

FP32 = ExportSettings(precisions=("fp32",), shortlist=None)


def test_the_grid_is_in_a_file_without_a_name_and_read_as_it_was_computed(tmp_path: Path) -> None:
    model = random_model()
    for reference in draw_grid(model, limits_of(model), folder=tmp_path):
        case = reference.case
        for source, target, row in zip(case.sources, case.targets, reference.rows, strict=True):
            assert isinstance(row.log_probs, np.memmap)
            assert np.allclose(row.log_probs, expected_log_probs(model, source, target), atol=1e-4)
            shapes = {kind: weights.shape[2:] for kind, weights in row.attention.items()}
            queries, keys = 1 + len(target), len(source)
            assert shapes == {"encoder": (keys, keys), "decoder": (queries, queries), "cross": (queries, keys)}
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_for_the_grid_is_named(tmp_path: Path) -> None:
    model = random_model()
    with (
        room(4096),
        pytest.raises(BundleError, match=r"the gates cannot write a temporary file \(File too large\)"),
    ):
        draw_grid(model, limits_of(model), folder=tmp_path)


def mapped_files() -> set[str]:
    """Return the inodes of the files without a name that this process has mapped."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {line.split()[4] for line in lines if line.endswith("(deleted)")}


def test_weights_are_mapped_as_they_are(tmp_path: Path) -> None:
    model, before = copy.deepcopy(random_model()), mapped_files()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    shared = len(list(model.parameters())), len({each.data_ptr() for each in model.state_dict().values()})
    map_weights(model, tmp_path)
    assert all(torch.equal(weights[name], weight) for name, weight in model.state_dict().items())
    assert shared == (len(list(model.parameters())), len({each.data_ptr() for each in model.state_dict().values()}))
    assert list(tmp_path.iterdir()) == []
    assert len(mapped_files() - before) == 1
    del model
    gc.collect()
    assert mapped_files() <= before


def test_the_weights_of_the_checkpoint_are_mapped_while_graphs_are_built(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path
) -> None:
    def see(line: str) -> None:
        if ": built, reads" in line:
            built.append(len(mapped_files() - before))

    before, built = mapped_files(), list[int]()
    export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:4], pairs), FP32, see)
    assert built == [1]


def test_a_full_disk_for_weights_is_named_and_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model = random_model()
    places = [each.data_ptr() for each in model.parameters()]
    with (
        room(4096),
        pytest.raises(BundleError, match=r"the gates cannot write a temporary file \(File too large\)"),
    ):
        map_weights(model, tmp_path)
    assert [each.data_ptr() for each in model.parameters()] == places


@pytest.mark.native
def test_graphs_are_loaded_while_no_model_but_the_checkpoint_is_in_memory(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def models() -> int:
        gc.collect()
        return sum(type(each) is Transformer for each in gc.get_objects())

    def loaded(*arguments: Any, **more: Any) -> OnnxRunner:
        counts.append(models())
        return load_runner(*arguments, **more)

    accept_any_quality(monkeypatch)
    monkeypatch.setattr(lingon.export.gated_bundle, "load_runner", loaded)
    before, counts = models(), list[int]()
    settings = ExportSettings(precisions=("int8", NATIVE), shortlist=None, parity_sentences=2)
    lines: list[str] = []
    export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:4], pairs), settings, lines.append)
    assert counts == [before] * len(counts)
    assert len(counts) >= 3


def test_the_graphs_of_fp32_are_loaded_once_for_the_gates(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def loaded(bundle: Any, name: str, **more: Any) -> OnnxRunner:
        names.append(name)
        return load_runner(bundle, name, **more)

    def checked(bundle: Any, name: str, runner: OnnxRunner) -> None:
        checks.append(name)
        check_bundle(bundle, name, runner)

    checks = list[str]()
    accept_any_quality(monkeypatch)
    monkeypatch.setattr(lingon.export.gated_bundle, "load_runner", loaded)
    monkeypatch.setattr(lingon.export.gated_bundle, "check_bundle", checked)
    settings = ExportSettings(precisions=("int8",), shortlist=None, parity_sentences=2)
    export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:4], pairs), settings)
    assert names == ["fp32", "int8", "fp32", "int8"], "for the gates, and for confidence and golden sentences"
    assert checks == ["fp32", "int8"], "the longest texts take most memory of an export"


@pytest.mark.native
def test_precisions_with_one_calibration_measure_once_and_are_those_of_their_own() -> None:
    model, runs, names = random_model(norm="pre"), list[int](), ("int8", NATIVE)
    hook = model.register_forward_pre_hook(lambda *_: runs.append(1))  # a smoothed model has a copy of it
    alone = [build(model, name, WeightFiles(), random_pairs(6), shortlist=False).graphs for name in names]
    assert len(runs) == 2 * 6, "each sentence for each precision"
    runs.clear()
    calibration = Calibration(random_pairs(6))
    together = [build(model, name, WeightFiles(), calibration, shortlist=False).graphs for name in names]
    assert len(runs) == 6
    hook.remove()
    assert together == alone


@pytest.mark.parametrize("known", [False, True])
def test_an_emulation_leaves_the_model_and_its_tables_as_they_are(known: bool) -> None:
    model = random_model(norm="pre")
    before = {name: each.clone() for name, each in model.state_dict().items()}
    ranges = Calibration(random_pairs(6)).smoothed(model).ranges
    calibration = Calibration(known=ranges) if known else Calibration(random_pairs(6))
    emulation = build(model, "int8", WeightFiles(), calibration, shortlist=False).emulation
    assert emulation is not None
    emulated = emulation()
    assert emulated.source_embedding.pieces.weight is model.source_embedding.pieces.weight
    assert not torch.equal(emulated.output.weight, model.output.weight)
    assert emulated.encoder[0] is not model.encoder[0], "its products have hooks of their own"
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_a_known_translation_of_the_reference_search_is_taken_for_its_own_settings_alone(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path
) -> None:
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), FP32)
    runner, tokenizer = load_runner(bundle, "fp32", threads=1), checkpoint.tokenizer
    texts = [pair.source for pair in pairs[:3]]
    source = tuple(tokenizer.encode_source(texts[1]))
    ((best, *_),) = translate(checkpoint.model, [source], SearchSettings())
    known = {(source, ()): best}
    assert check_tokens(checkpoint.model, runner, tokenizer, texts, 1, 0.0, known=known).sentences == 3
    wrong = {(source, ()): replace(best, tokens=(*best.tokens, 5, 5))}
    check_tokens(checkpoint.model, runner, tokenizer, texts, 4, 1.0, known=wrong)
    with pytest.raises(ParityError, match=r"in the engine and .* in the reference"):
        check_tokens(checkpoint.model, runner, tokenizer, texts, 1, 0.0, known=wrong)


def test_the_longest_source_and_the_longest_translation_are_checked_apart() -> None:
    """Together they have the largest matrices of attention that a bundle allows, besides the logits."""
    runner, lengths = random_runner(), list[tuple[int, int]]()

    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return getattr(runner, name)

        def score(self, sources: np.ndarray, source_lengths: np.ndarray, targets: np.ndarray, *more: Any) -> Any:
            lengths.append((sources.shape[1], targets.shape[1]))
            return runner.score(sources, source_lengths, targets, *more)

    bundle = Bundle(Path("random"), runner.manifest)
    check_scorer(bundle, "fp32", cast("OnnxRunner", Recorded()))
    limits = runner.limits
    assert [max(each) for each in zip(*lengths, strict=True)] == [
        limits.max_source_tokens,
        limits.max_target_tokens - 1,
    ]
    assert max(source * target for source, target in lengths) < limits.max_source_tokens * (
        limits.max_target_tokens - 1
    )


def test_what_graphs_compute_over_the_grid_is_compared_with_both_references_at_once() -> None:
    model, runner, encoded = random_model(), random_runner(precision="int8"), list[int]()
    emulation = build(model, "int8", WeightFiles(), random_pairs(8), shortlist=False).emulation
    assert emulation is not None
    grids = [draw_grid(each, limits_of(model)) for each in (model, emulation())]

    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return getattr(runner, name)

        def encode(self, sources: np.ndarray, lengths: np.ndarray) -> Any:
            encoded.append(len(sources))
            return runner.encode(sources, lengths)

    found = check_tensors(cast("OnnxRunner", Recorded()), "int8", *grids)
    assert len(encoded) == len(grids[0]) == found.shapes
    assert found.exact_rows is not None
    assert found.step_mean > 0


def test_an_export_says_what_it_begins_and_how_far_it_is(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    settings, lines = ExportSettings(precisions=("int8",), shortlist=None, parity_sentences=2), list[str]()
    export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:4], pairs), settings, lines.append)
    for number, name in enumerate(("fp32", "int8"), start=1):
        built = next(index for index, line in enumerate(lines) if line.startswith(f"{name}: built"))
        compared = next(
            index for index, line in enumerate(lines) if "attention heads compared" in line and name in line
        )
        assert lines[built - 1] == f"building {name}, {number} of 2 precisions"
        assert lines.index(f"checking {name}, {number} of 2 precisions") < compared
    chosen = lines.index("choosing golden sentences")
    assert "golden sentences" in lines[chosen + 1]


def test_an_export_without_exact_rows_is_bound_by_what_rounding_makes(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    monkeypatch.setattr(gates_checkpoint, "EXACT_ROWS", 1.1)
    settings = ExportSettings(precisions=("int8",), shortlist=None, parity_sentences=2)
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:4], pairs), settings, lambda _: None)
    report = bundle.manifest.precisions["int8"].report["emulation"]
    assert 0 < report["of_disturbance"] <= gates_checkpoint.MOST_DISTURBED
