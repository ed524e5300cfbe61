"""A model on the CPU is a fallback only where a GPU was to be expected."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lingon.bundle.manifest import Precision
from lingon.bundle.names import PLACE
from lingon.bundle.store import Bundle
from lingon.errors import DeviceError
from lingon.serving.models.registry import ModelRegistry
from lingon.serving.observability.metrics import Metrics
from lingon.serving.runtime import device as device_module
from lingon.serving.runtime.device import (
    CPU,
    CUDA,
    FP16_NATIVE,
    choose_device,
    expects_cuda,
    has_card,
    has_fallen_back,
    native_left_out,
)
from lingon.serving.settings import Settings
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import echo_engine, shipped_model
from tests.support.shipped_model import serving

MODEL = {"model": "en-de", "version": "1"}
BOTH = {"fp32": Precision(CPU, "fake", ()), "fp16": Precision(CUDA, "fake", ())}


def folder(path: Path, *names: str) -> Path:
    """A folder with files of these names."""
    path.mkdir()
    for name in names:
        (path / name).touch()
    return path


@pytest.mark.parametrize(
    ("devices", "cards", "visible"),
    [
        ([], [], False),
        (["null", "nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia-modeset"], [], False),  # a driver without a card
        (["null", "nvidia0"], [], True),
        (["nvidia12"], [], True),
        (["dxg"], [], True),
        ([], ["0000:01:00.0"], True),
    ],
)
def test_a_card_is_visible_by_its_device_file_or_by_the_driver(
    tmp_path: Path, devices: list[str], cards: list[str], visible: bool
):
    assert has_card(folder(tmp_path / "dev", *devices), folder(tmp_path / "gpus", *cards)) is visible


def test_no_card_is_visible_without_the_folders_of_devices_and_driver(tmp_path: Path):
    assert not has_card(tmp_path / "dev", tmp_path / "gpus")


@pytest.mark.parametrize(
    ("for_cuda", "device", "precision", "chosen"),
    [
        (["fp16", "fp32-cuda"], "auto", None, (CUDA, "fp16")),
        (["fp32-cuda", "fp16"], "cuda", None, (CUDA, "fp16")),
        (["fp32-cuda"], "auto", None, (CUDA, "fp32-cuda")),
        (["fp32-cuda"], "cuda", "fp32", (CUDA, "fp32-cuda")),
        (["fp16", "fp32-cuda"], "cuda", "fp32-cuda", (CUDA, "fp32-cuda")),
        (["fp16", "fp32-cuda"], "auto", "fp32-cuda", (CUDA, "fp32-cuda")),
        (["fp16", "fp32-cuda"], "auto", "fp32", (CPU, "fp32")),
        (["fp16", "fp32-cuda"], "cpu", "fp32", (CPU, "fp32")),
    ],
)
def test_fp32_on_cuda_is_taken_where_it_is_named_or_alone(
    for_cuda: list[str],
    device: str,
    precision: str | None,
    chosen: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(device_module, "cuda_missing", lambda: None)
    assert choose_device(bundle_for_cuda(tmp_path, for_cuda), device, precision) == chosen


def test_fp32_on_cuda_that_is_missing_is_named_with_what_the_bundle_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(device_module, "cuda_missing", lambda: None)
    has = r"it has fp32 \(CPUExecutionProvider\), fp16 \(CUDAExecutionProvider\)"
    with pytest.raises(DeviceError, match=f"tiny/1 has no fp32-cuda for CUDAExecutionProvider; {has}"):
        choose_device(bundle_for_cuda(tmp_path, ["fp16"]), "cuda", "fp32")


@pytest.mark.parametrize(
    ("card", "kernels", "reason"),
    [(None, None, None), ("no library", None, "no library"), (None, "no compiler", "no compiler")],
)
def test_graphs_in_operators_for_cuda_serve_where_their_libraries_are_and_fp16_elsewhere(
    card: str | None, kernels: str | None, reason: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Beam search needs the operators for the CPU as well."""
    monkeypatch.setattr(device_module, "cuda_missing", lambda: None)
    monkeypatch.setattr(device_module, "card_missing", lambda: card)
    monkeypatch.setattr(device_module, "kernels_missing", lambda: kernels)
    bundle = bundle_for_cuda(tmp_path, ["fp32-cuda", "fp16", FP16_NATIVE])
    choice = choose_device(bundle)
    assert choice == (CUDA, "fp16" if reason else FP16_NATIVE)
    assert native_left_out(bundle, choice) == reason
    assert choose_device(bundle, native=False) == (CUDA, "fp16")
    assert choose_device(bundle, precision="fp16") == (CUDA, "fp16")
    if reason:
        with pytest.raises(DeviceError, match=f"^precision fp16-native: {reason}$"):
            choose_device(bundle, precision=FP16_NATIVE)


def test_without_cuda_its_fp32_is_an_error_and_no_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device_module, "cuda_missing", lambda: "no card")
    bundle = bundle_for_cuda(tmp_path, ["fp32-cuda"])
    assert choose_device(bundle, "auto") == (CPU, "fp32")
    with pytest.raises(DeviceError, match="device cuda: no card"):
        choose_device(bundle, "cuda", "fp32")
    with pytest.raises(DeviceError, match="tiny/1 has no fp32-cuda for CPUExecutionProvider"):
        choose_device(bundle, "auto", "fp32-cuda")


def bundle_for_cuda(folder: Path, for_cuda: list[str]) -> Bundle:
    """A bundle of fp32 for the CPU and of precisions for CUDA, without files."""
    tiny = echo_engine.bundle(folder)
    precisions = {"fp32": BOTH["fp32"], **{name: Precision(CUDA, "fake", ()) for name in for_cuda}}
    checksums = {f"{name}/{PLACE}": "0" * 64 for name in for_cuda}
    return Bundle(
        tiny.folder,
        dataclasses.replace(tiny.manifest, name="tiny", version=1, precisions=precisions, checksums=checksums),
    )


@pytest.mark.parametrize(
    ("provider", "device", "precision", "expected", "fallback"),
    [
        (CPU, "auto", None, True, True),
        (CPU, "auto", "fp16", True, True),
        (CPU, "auto", None, False, False),  # no card, CPU build
        (CUDA, "auto", None, True, False),
        (CPU, "cpu", None, True, False),  # the CPU was asked for
        (CPU, "auto", "fp32", True, False),  # a precision for the CPU was asked for
    ],
)
def test_only_a_cpu_that_nobody_chose_is_a_fallback(
    provider: str, device: str, precision: str | None, expected: bool, fallback: bool
):
    bundle = Bundle(Path(), echo_engine.manifest(precisions=BOTH))
    assert has_fallen_back(bundle, provider, device, precision, expects_cuda=expected) is fallback


def test_a_bundle_without_graphs_for_a_gpu_never_falls_back():
    bundle = Bundle(Path(), dataclasses.replace(echo_engine.manifest(), precisions={"fp32": BOTH["fp32"]}))
    assert not has_fallen_back(bundle, CPU, "auto", None, expects_cuda=True)


@pytest.mark.parametrize("gpu_expected", [True, False])
def test_the_metric_is_1_and_the_log_has_a_line_only_where_a_gpu_is_expected(
    tmp_path: Path, gpu_expected: bool, caplog: pytest.LogCaptureFixture
):
    bundle, loader = echo_engine.bundle(tmp_path, precisions=BOTH), echo_engine.Loader(echo_engine.EchoRunner())
    metrics = Metrics()
    try:
        registry = ModelRegistry(Settings(models=(tmp_path,)), metrics, loader, lambda: gpu_expected)
        registry.load(bundle)
    finally:
        loader.end()
    assert metrics.registry.get_sample_value("lingon_provider_fallback", MODEL) == gpu_expected
    assert ("falls back to the CPU" in caplog.messages) == gpu_expected


async def test_a_server_with_default_settings_reports_a_fallback_only_on_a_machine_for_cuda():
    assert any(each.provider == CUDA for each in shipped_model.bundle().manifest.precisions.values())
    async with serving() as server:
        (model,) = (await server.stub.ListModels(pb.ListModelsRequest())).models
        fallback = server.counted("lingon_provider_fallback", model="en-de", version=model.version)
    assert fallback == (model.provider == CPU and expects_cuda())
