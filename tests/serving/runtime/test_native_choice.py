"""Graphs in native operators serve where their library is there; elsewhere others serve, and one line says why."""

from __future__ import annotations

import _ctypes
import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingon.bundle.manifest import Precision
from lingon.bundle.store import Bundle
from lingon.errors import DeviceError
from lingon.serving.observability.metrics import Metrics
from lingon.serving.runtime import device as device_module
from lingon.serving.runtime.device import (
    CPU,
    FP32_NATIVE,
    NATIVE,
    choose_device,
    instruction_set,
    kernels_missing,
    native_left_out,
    preferred_native,
)
from lingon.serving.settings import load
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import echo_engine


def bundle_with(*precisions: str) -> Bundle:
    """A bundle of precisions for the CPU, without files."""
    entries = {name: Precision(CPU, "fake", ()) for name in precisions}
    return Bundle(Path(), dataclasses.replace(echo_engine.manifest(), name="tiny", version=1, precisions=entries))


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> str:
    """Why there are no native operators in this test."""
    reason = "the library is not built"
    monkeypatch.setattr(device_module, "kernels_missing", lambda: reason)
    return reason


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are native operators in this test."""
    monkeypatch.setattr(device_module, "kernels_missing", lambda: None)


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of the library in this test, where there is no file yet."""
    monkeypatch.setattr(device_module, "LIBRARY", tmp_path / "library.so")
    device_module.library.cache_clear()
    yield tmp_path / "library.so"
    device_module.library.cache_clear()


@pytest.mark.usefixtures("there")
def test_native_operators_are_preferred_to_all_other_graphs():
    bundle = bundle_with("fp32", "int8", NATIVE)
    choice = choose_device(bundle)
    assert choice == choose_device(bundle, "cpu", NATIVE) == (CPU, NATIVE)
    assert native_left_out(bundle, choice) is None
    assert native_left_out(bundle, choose_device(bundle, precision="int8")) is None


@pytest.mark.usefixtures("there")
def test_native_operators_of_floats_are_preferred_to_other_graphs_of_floats_alone():
    assert choose_device(bundle_with("fp32", FP32_NATIVE)) == (CPU, FP32_NATIVE)
    assert choose_device(bundle_with("fp32", FP32_NATIVE), precision="fp32") == (CPU, "fp32")
    assert choose_device(bundle_with("fp32", "int8", FP32_NATIVE)) == (CPU, "int8")
    assert choose_device(bundle_with("fp32", FP32_NATIVE, NATIVE)) == (CPU, NATIVE)
    assert choose_device(bundle_with("fp32", FP32_NATIVE, NATIVE), native=False) == (CPU, "fp32")
    preferred = [preferred_native(bundle_with("fp32", *more)) for more in ([], [FP32_NATIVE], [FP32_NATIVE, NATIVE])]
    assert preferred == ["", FP32_NATIVE, NATIVE]


@pytest.mark.parametrize(
    ("others", "chosen"), [(["fp32", "int8"], "int8"), (["fp32"], "fp32"), (["fp32", FP32_NATIVE], "fp32")]
)
def test_without_their_library_the_best_of_the_other_graphs_serve(missing: str, others: list[str], chosen: str):
    bundle = bundle_with(NATIVE, *others)
    choice = choose_device(bundle)
    assert choice == (CPU, chosen)
    assert native_left_out(bundle, choice) == missing


def test_native_operators_that_are_asked_for_are_an_error_without_their_library(missing: str):
    with pytest.raises(DeviceError, match=f"^precision int8-native: {missing}$"):
        choose_device(bundle_with("fp32", "int8", NATIVE), precision=NATIVE)
    with pytest.raises(DeviceError, match=f"^precision fp32-native: {missing}$"):
        choose_device(bundle_with("fp32", FP32_NATIVE), precision=FP32_NATIVE)
    with pytest.raises(DeviceError, match=r"tiny/1 has no int8-native for CPUExecutionProvider; it has fp32 \("):
        choose_device(bundle_with("fp32"), precision=NATIVE)


def test_a_bundle_without_native_graphs_leaves_nothing_out(missing: str):
    bundle = bundle_with("fp32", "int8")
    assert native_left_out(bundle, choose_device(bundle)) is None


def test_a_library_that_is_not_built_is_said_with_the_command_that_builds_it(searched: Path):
    assert instruction_set() == ""
    reason = "the library of native operators is not built: `make kernels` builds it with a C++ compiler"
    assert kernels_missing() == reason


def test_a_library_for_another_machine_is_said(searched: Path):
    searched.write_bytes(b"\x7fELF for another machine")
    assert kernels_missing() == "library.so cannot be loaded on this machine: `make kernels` builds one for it"


def test_a_library_of_older_operators_is_said(searched: Path):
    shutil.copy(_ctypes.__file__, searched)  # a library without the entries
    assert kernels_missing() == "library.so cannot be loaded on this machine: `make kernels` builds one for it"


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_an_instruction_set_that_does_not_exist_is_named_with_its_variable():
    asked = "from lingon.serving.runtime.device import kernels_missing; print(kernels_missing())"
    variables = {**os.environ, "LINGON_KERNELS": "mmx"}  # a process reads it once
    answer = subprocess.run([sys.executable, "-c", asked], env=variables, check=True, capture_output=True, text=True)
    reason = "LINGON_KERNELS is mmx, and this processor has no native operators of that name"
    assert answer.stdout.strip() == reason


def test_the_variable_of_the_operators_is_no_unknown_setting(tmp_path: Path):
    assert load({}, {"LINGON_KERNELS": "portable"}, None).settings


def test_the_metric_of_a_model_names_the_instruction_set():
    metrics = Metrics()
    metrics.model("tiny", 1).loaded(pb.Model(precision=NATIVE), "transformer", 1, "avx2")
    metrics.model("tiny", 2).loaded(pb.Model(precision="int8"), "transformer", 1)
    samples = [
        each for family in metrics.registry.collect() if family.name == "lingon_model_info" for each in family.samples
    ]
    assert [(each.labels["precision"], each.labels["instruction_set"]) for each in samples] == [
        (NATIVE, "avx2"),
        ("int8", ""),
    ]
