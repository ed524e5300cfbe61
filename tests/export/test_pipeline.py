"""The export: its gates, its errors, and that a failed export leaves no files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import lingon.export.pipeline
from lingon.bundle.names import CARD
from lingon.bundle.store import open_bundle
from lingon.errors import BundleError, CheckpointError, DeviceError, ParityError, SettingsError
from lingon.export import gates_checkpoint, gates_text
from lingon.export.differences import LOG_PROBS, Tolerance
from lingon.export.gated_bundle import NOT_ON_CUDA
from lingon.export.gates_text import engine_search
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.export.shortlist import ShortlistSettings
from lingon.serving.runtime.device import CPU, CUDA, FP16_NATIVE
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.training.checkpoint import Checkpoint
from lingon.training.corpus import Pair
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.transformer import Transformer
from lingon.training.search import SearchSettings, translate
from tests.support.random_models import accept_any_quality, random_model, random_runner

FP32 = ExportSettings(precisions=("fp32",), shortlist=None)


def test_an_export_is_a_verified_bundle_with_its_reports(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    lines: list[str] = []
    texts = ExportTexts(pairs[:30], pairs)
    settings = ExportSettings(shortlist=ShortlistSettings(), parity_sentences=20)
    written = export_checkpoint(checkpoint, tmp_path / "digits", texts, settings, lines.append)
    opened = open_bundle(tmp_path / "digits")
    opened.verify()
    assert opened.folder == written.folder == tmp_path / "digits" / "1"
    manifest = opened.manifest
    gates = {name: entry.gate for name, entry in manifest.precisions.items()}
    passed = dict.fromkeys(("fp32", "int8", "int8-native", "fp32-native"), "passed")
    assert gates == {**passed, "fp32-cuda": NOT_ON_CUDA, "fp16": NOT_ON_CUDA}
    report = manifest.precisions["fp32"].report
    assert report["sentences"] == 20
    assert report["greedy"]["identical"] + len(report["greedy"]["excused"]) == 20
    assert report["beam 4"]["identical"] + len(report["beam 4"]["excused"]) == 20
    assert manifest.precisions["int8"].report["quality"]["sentences"] == 30
    on_cuda = manifest.precisions["fp32-cuda"].report
    assert "quality" not in on_cuda
    for search in ("greedy", "beam 4"):
        assert on_cuda[f"tokens, {search}"]["identical"] + len(on_cuda[f"tokens, {search}"]["near_ties"]) == 20
    assert manifest.shortlist is not None
    assert set(manifest.shortlist) == {"coverage", *passed}
    assert report["tensors"]["step_difference"] < 1e-4
    assert "7 updates" in opened.read(CARD).decode()
    assert any("20 of 20" in line for line in lines)


def test_the_next_export_is_the_next_version_and_nothing_is_written_elsewhere(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    for version in (1, 2):
        bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), FP32)
        assert bundle.manifest.version == version
    assert sorted(path.name for path in (tmp_path / "digits").iterdir()) == ["1", "2"]


def test_a_failed_gate_leaves_nothing(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOG_PROBS, "fp32", Tolerance(largest=1e-12))
    with pytest.raises(ParityError):
        export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), FP32)
    assert not (tmp_path / "digits").exists()


def test_tokens_that_differ_name_the_first_sentence(checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path) -> None:
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), FP32)
    runner = load_runner(bundle, "fp32", threads=1)
    with torch.no_grad():
        checkpoint.model.target_embedding.pieces.weight += 0.05 * torch.randn_like(checkpoint.model.output.weight)
    texts = [pair.source for pair in pairs[:20]]
    for beam_size in (1, 4):
        with pytest.raises(ParityError, match=rf"beam size {beam_size}: '\d.*' becomes .* in the engine and .* in the"):
            gates_checkpoint.check_tokens(checkpoint.model, runner, checkpoint.tokenizer, texts, beam_size, 1.0)


def test_int8_that_loses_too_much_quality_leaves_no_bundle(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path
) -> None:
    model = checkpoint.model
    with torch.no_grad():  # one channel is 1,000 times the others, so one scale cannot fit both
        model.decoder[0].around_feed_forward.norm.bias[0] = 3e3
        model.decoder[0].feed_forward.inner.weight[:, 0] *= 1e-3
    source = [tuple(checkpoint.tokenizer.encode_source(pair.source)) for pair in pairs[:10]]
    spoken = translate(model, source, SearchSettings(beam_size=4, length_penalty=1.0))
    texts = [checkpoint.tokenizer.decode(found[0].tokens) for found in spoken]
    echoed = [pair._replace(target=text) for pair, text in zip(pairs, texts, strict=False)]
    settings = ExportSettings(precisions=("int8",), shortlist=None)
    with pytest.raises(ParityError, match="int8: BLEU"):
        export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(echoed, pairs), settings)
    assert not (tmp_path / "digits").exists()


def test_ranges_and_shortlist_need_text(checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"int8 needs sentences .* got none"):
        export_checkpoint(
            checkpoint,
            tmp_path / "digits",
            ExportTexts(pairs[:2]),
            ExportSettings(precisions=("int8",), shortlist=None),
        )
    assert not ExportSettings(precisions=("fp32", "fp16"), shortlist=None).reads_training_text
    assert ExportSettings(precisions=("fp32",)).reads_training_text
    assert ExportSettings(precisions=("int8",), shortlist=None).build_order == ["fp32", "int8"]


@pytest.mark.parametrize(
    ("value", "precision", "message"),
    [
        (math.nan, "int8", "is not finite: its largest magnitude is nan"),
        (-math.inf, "fp32", "is not finite: its largest magnitude is inf"),
        (
            -7e4,
            "fp16",
            "has magnitudes up to 70,000, fp16 holds at most 65,504; export without fp16: --precision fp32,int8",
        ),
    ],
)
def test_weights_beyond_the_range_of_a_precision_are_named(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, value: float, precision: str, message: str
) -> None:
    with torch.no_grad():
        checkpoint.model.decoder[0].cross.query.weight[3, 4] = value
    settings = ExportSettings(precisions=(precision,), shortlist=None)
    with pytest.raises(CheckpointError) as raised:
        export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2], pairs[:9]), settings)
    assert str(raised.value) == f"{checkpoint.folder}: decoder.0.cross.query.weight {message}"
    assert not (tmp_path / "digits").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"precisions": ("fp32", "fp8")},
            "--precision must be some of fp32, fp32-cuda, fp16, int8, int8-native, fp32-native, fp16-native, got",
        ),
        ({"shortlist": None, "shortlist_by_default": True}, "--shortlist-by-default needs --shortlist"),
        ({"beam_size": 0}, "--beam-size must be 1 to 128, got 0"),
        ({"max_beam_size": 129}, "--max-beam-size must be 1 to 128, got 129"),
        ({"beam_size": 5, "max_beam_size": 4}, "--beam-size must be 1 to 4, which is --max-beam-size, got 5"),
        ({"length_penalty": 11.0}, "--length-penalty must be 0 to 10, got 11.0"),
        ({"length_penalty": math.nan}, "--length-penalty must be 0 to 10, got nan"),
        ({"gate_on": "gpu"}, "--gate-on must be auto, cpu or cuda, got gpu"),
        (
            {"precisions": ("fp32", "int8"), "gate_on": "cuda"},
            r"--gate-on cuda needs a precision for CUDA \(fp32-cuda or fp16 or fp16-native\), got --precision fp32,i",
        ),
    ],
)
def test_settings_out_of_bounds_are_errors_with_the_option(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        ExportSettings(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("folder", "attached", "message"),
    [
        ("en de", [], "{}/en de: the name of the model must be a name of letters, digits and . + - _, got en de"),
        ("file", [], "{}/file: cannot write below it: {}/file is no folder"),
        ("file/en-de", [], "{}/file/en-de: cannot write below it: {}/file is no folder"),
        ("en-de", ["x(1).png"], "--attach {}/x(1).png: its name must be the name of a file, got x(1).png"),
        (
            "en-de",
            ["a/x.md", "b/x.md"],
            "--attach {}/a/x.md and {}/b/x.md: a bundle has one file of a name; rename one",
        ),
        (
            "en-de",
            ["a/MODEL_CARD.md"],
            "--attach {}/a/MODEL_CARD.md: the export writes MODEL_CARD.md; use --card for its own text",
        ),
        ("en-de", ["more.md"], "--attach {}/more.md: No such file or directory"),
    ],
)
def test_a_bundle_that_cannot_be_published_fails_before_anything_is_built(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, folder: str, attached: list[str], message: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("a/x.md", "b/x.md", "a/MODEL_CARD.md", "x(1).png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    before, lines = sorted(tmp_path.iterdir()), list[str]()
    settings = replace(FP32, attachments=tuple(tmp_path / name for name in attached))
    with pytest.raises(SettingsError) as raised:
        export_checkpoint(checkpoint, tmp_path / folder, ExportTexts(pairs[:2]), settings, lines.append)
    assert str(raised.value) == message.replace("{}", str(tmp_path))
    assert not lines
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("folder", "version"), [("digits/1", "digits/1"), ("digits/1/fp32", "digits/1"), ("digits/2", "digits/2")]
)
def test_a_version_of_a_bundle_is_no_folder_for_another_model(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, folder: str, version: str
) -> None:
    export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), FP32)
    with pytest.raises(SettingsError) as raised:
        export_checkpoint(checkpoint, tmp_path / folder, ExportTexts(pairs[:2]), FP32)
    assert str(raised.value) == (
        f"{tmp_path / folder}: {tmp_path / version} is for a version of a model, whose files never change; name the "
        f"folder of the model, {tmp_path / 'digits'}: the next version is written below it"
    )
    assert [path.name for path in (tmp_path / "digits").iterdir()] == ["1"]
    open_bundle(tmp_path / "digits" / "1").verify()


def test_an_invalid_manifest_fails_before_anything_is_built(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path
) -> None:
    lines: list[str] = []
    settings = replace(FP32, output_factor=-1.0)
    with pytest.raises(
        BundleError, match=rf"^{tmp_path}/digits/1/manifest\.json: limits\.output_factor must be 0 to 100"
    ):
        export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), settings, lines.append)
    assert not lines


def test_without_a_gpu_fp16_is_checked_on_the_cpu_and_the_reason_is_logged(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the GPU build of ONNX Runtime, which lists its provider even without a GPU."""
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr("ctypes.CDLL", _no_driver)
    lines: list[str] = []
    settings = ExportSettings(precisions=("fp16",), shortlist=None, parity_sentences=2)
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), settings, lines.append)
    assert bundle.manifest.precisions["fp16"].gate == NOT_ON_CUDA
    assert "fp16: the gate does not run: there is no NVIDIA driver (libcuda.so.1 is not found)" in lines
    head_dim = checkpoint.model.settings.head_dim
    slow = f"fp16: heads have {head_dim} dimensions; the fast attention of CUDA takes 64, 128 or 256"
    assert (slow in lines) == (head_dim not in (64, 128, 256))
    assert head_dim < 64


def test_gates_that_must_run_on_cuda_fail_before_any_work_without_a_card(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr("ctypes.CDLL", _no_driver)
    lines: list[str] = []
    settings = ExportSettings(precisions=("fp32-cuda",), shortlist=None, gate_on="cuda")
    message = r"^--gate-on cuda: there is no NVIDIA driver \(libcuda\.so\.1 is not found\)$"
    with pytest.raises(DeviceError, match=message):
        export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), settings, lines.append)
    assert not lines
    assert not (tmp_path / "digits").exists()


def test_gates_on_the_cpu_do_not_look_for_a_card(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where CUDA is usable; sessions on it could not be made here."""
    monkeypatch.setattr(lingon.export.pipeline, "cuda_missing", lambda: None)
    lines: list[str] = []
    settings = ExportSettings(precisions=("fp32-cuda",), shortlist=None, parity_sentences=2, gate_on="cpu")
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), settings, lines.append)
    entry = bundle.manifest.precisions["fp32-cuda"]
    assert (entry.provider, entry.gate, entry.report["checked_on"]) == (CUDA, NOT_ON_CUDA, CPU)
    assert "fp32-cuda: the gate does not run: --gate-on is cpu" in lines


def _no_driver(name: str) -> None:
    raise OSError(name)


def test_a_bundle_that_no_server_would_load_is_not_published(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path
) -> None:
    for embedding in (checkpoint.model.source_embedding, checkpoint.model.target_embedding):
        embedding.positions = embedding.positions[:30]  # fewer than max_positions
    with pytest.raises(BundleError, match=r"decoder cannot write limits\.max_target_tokens, 32"):
        export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), FP32)
    assert not (tmp_path / "digits").exists()


@pytest.mark.parametrize("beam_size", [1, 3])
def test_gates_use_the_default_search_and_the_numbers_of_sentences_of_the_settings(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beam_size: int
) -> None:
    searches: list[tuple[int, int]] = []

    def noted(runner: OnnxRunner, sources: list[tuple[int, ...]], width: int, *rest: Any, **more: Any) -> Any:
        searches.append((len(sources), width))
        return engine_search(runner, sources, width, *rest, **more)

    monkeypatch.setattr(gates_text, "engine_search", noted)
    accept_any_quality(monkeypatch)
    settings = ExportSettings(precisions=("int8",), shortlist=None, beam_size=beam_size, parity_sentences=4)
    settings, lines = replace(settings, gate_sentences=3), list[str]()
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:6], pairs), settings, lines.append)
    # Scores need all six with both searches, in each precision; tokens and quality read the first of these. With the
    # length penalty of the bundle greedy search finds the same tokens.
    assert searches == [(6, 1), (6, 4 if beam_size == 1 else 3)] * 2
    assert bundle.manifest.precisions["int8"].report["quality"]["sentences"] == 3
    report = bundle.manifest.precisions["fp32"].report
    assert report["sentences"] == 4
    assert {"greedy", "beam 4" if beam_size == 1 else "beam 3"} < report.keys()
    assert not any(line.startswith("held-out text") for line in lines)


def test_fewer_held_out_sentences_than_requested_are_logged(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path
) -> None:
    lines: list[str] = []
    settings = replace(FP32, parity_sentences=500)
    export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), settings, lines.append)
    assert lines[0] == "held-out text: 2 sentences, not 500, to compare tokens"


def test_pairs_longer_than_max_tokens_are_not_used_for_calibration(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    long = Pair("1 " * 40 + "2", "2" + " 1" * 40)
    settings = ExportSettings(precisions=("int8",), shortlist=None, parity_sentences=2)
    digests = []
    for name, training in (("with", [*pairs[:9], long]), ("without", pairs[:9])):
        bundle = export_checkpoint(checkpoint, tmp_path / name, ExportTexts(pairs[:2], training), settings)
        digests.append(bundle.manifest.checksums["int8/decoder.onnx"])
    assert digests[0] == digests[1]


def test_of_few_sentences_one_may_be_a_near_tie(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), FP32)
    runner = load_runner(bundle, "fp32", threads=1)
    with torch.no_grad():  # every translation differs
        checkpoint.model.target_embedding.pieces.weight += 0.5 * torch.randn_like(checkpoint.model.output.weight)
    monkeypatch.setattr(gates_checkpoint, "is_near_tie", lambda *_: True)
    texts = [pair.source for pair in pairs[:2]]
    report = gates_checkpoint.check_tokens(checkpoint.model, runner, checkpoint.tokenizer, texts[:1], 4, 1.0)
    assert str(report) == "0 of 1 sentences identical, 1 near ties (at most 1)"
    with pytest.raises(ParityError, match=r"2 of 2 sentences .* at most 1 "):
        gates_checkpoint.check_tokens(checkpoint.model, runner, checkpoint.tokenizer, texts, 4, 1.0)


def test_the_alignment_layer_must_exist(checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--alignment-layer must be 0 to 1, got 2"):
        export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:2]), replace(FP32, alignment_layer=2))


def test_a_near_tie_is_excused_and_any_other_difference_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model, runner = random_model(norm="pre"), random_runner(norm="pre")
    source = (5, 6, 7, 2)
    (mine,), (theirs,) = (
        engine_search(runner, [source], 1, 0.0)[0],
        translate(model, [source], gates_checkpoint.reference_settings(runner.limits, 1, 0.0))[0],
    )
    other = replace(theirs, tokens=(theirs.tokens[0] + 1, *theirs.tokens[1:]))
    assert not gates_checkpoint.is_near_tie(model, runner, source, (mine, other), SearchSettings())
    monkeypatch.setattr(gates_checkpoint, "NEAR_TIE", 1e9)
    assert gates_checkpoint.is_near_tie(model, runner, source, (mine, other), SearchSettings())


@pytest.fixture
def for_operators(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint whose heads the operators for CUDA take."""
    settings = TransformerSettings.model_validate({"preset": "tiny", "dim": 32, "heads": 1})
    tokenizer = checkpoint.tokenizer
    model = Transformer(settings, tokenizer.source_vocab, tokenizer.target_vocab).eval()
    return replace(checkpoint, config=checkpoint.config.model_copy(update={"model": settings}), model=model)


def test_graphs_in_operators_for_cuda_have_the_gate_of_fp16_where_they_cannot_run(
    for_operators: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    lines: list[str] = []
    settings = ExportSettings(precisions=(FP16_NATIVE,), shortlist=None, parity_sentences=2, gate_sentences=2)
    bundle = export_checkpoint(for_operators, tmp_path / "digits", ExportTexts(pairs[:2]), settings, lines.append)
    bundle.verify()
    entries = bundle.manifest.precisions
    assert list(entries) == ["fp32", "fp16", FP16_NATIVE]
    assert (entries[FP16_NATIVE].provider, entries[FP16_NATIVE].gate) == (CUDA, NOT_ON_CUDA)
    by_fp16 = {**entries["fp16"].report, "checked_on": CPU, "checked_by": "fp16"}
    assert entries[FP16_NATIVE].report == by_fp16
    assert entries[FP16_NATIVE].weights == entries["fp16"].weights
    assert f"{FP16_NATIVE}: the results are those of fp16" in lines
    assert not any(line.startswith(f"{FP16_NATIVE}: heads have") for line in lines)
    graphs = {path.partition("/")[2] for path in bundle.manifest.checksums if path.startswith(f"{FP16_NATIVE}/")}
    assert {"beam.onnx", "greedy_steps.onnx", "beam_steps.onnx"} < graphs


def test_graphs_in_operators_for_cuda_fail_with_the_gate_of_fp16(
    for_operators: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOG_PROBS, "fp16", Tolerance(largest=1e-12))
    lines: list[str] = []
    settings = ExportSettings(
        precisions=(FP16_NATIVE,), optional=("fp16", FP16_NATIVE), shortlist=None, parity_sentences=2, gate_sentences=2
    )
    bundle = export_checkpoint(for_operators, tmp_path / "digits", ExportTexts(pairs[:2]), settings, lines.append)
    assert list(bundle.manifest.precisions) == ["fp32"]
    assert f"{FP16_NATIVE}: fp16, which takes its place here, did not pass its gate" in "\n".join(lines)
    assert not (bundle.folder / FP16_NATIVE).exists()
