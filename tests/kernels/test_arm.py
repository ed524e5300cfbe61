"""The kernels for 64-bit ARM in an emulator: all give the same bits, and a processor gets the best of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.tests.run import check, compile_driver

COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(
        shutil.which(COMPILER) is None or shutil.which(EMULATOR) is None, reason=f"needs {COMPILER} and {EMULATOR}"
    ),
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", COMPILER)
        yield compile_driver(tmp_path_factory.mktemp("driver"), "")


def test_each_instruction_set_gives_exact_products_and_the_bits_of_the_portable_one(
    driver: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check([EMULATOR, "-cpu", "max", str(driver)], seed=1, cases=28)
    printed = capfd.readouterr().out
    assert [line.split(":")[0] for line in printed.splitlines() if "digest" in line] == ["i8mm", "neon", "portable"]


@pytest.mark.parametrize(
    ("processor", "expected"), [("max", "i8mm"), ("neoverse-n1", "neon"), ("cortex-a53", "portable")]
)
def test_a_processor_gets_the_fastest_kernels_that_it_has(driver: Path, processor: str, expected: str) -> None:
    """Neoverse N1 has dot products and no I8MM, Cortex-A53 neither."""
    environment = {name: value for name, value in os.environ.items() if name != "LINGON_KERNELS"}
    command = [EMULATOR, "-cpu", processor, driver, "1", "0"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(f"{expected}: ")


def test_kernels_that_the_processor_does_not_have_cannot_be_chosen(driver: Path) -> None:
    environment = {**os.environ, "LINGON_KERNELS": "i8mm"}
    command = [EMULATOR, "-cpu", "neoverse-n1", driver, "1", "0"]
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode != 0
