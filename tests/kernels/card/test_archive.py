"""The archive of compiled kernels: it is that of the sources, and what is compiled has what the host relies on."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from kernels.card import build
from kernels.card.build import ARCHITECTURES, ARCHIVE, FOLDER, SIZES, SOURCES, Image, differences, parameter_sizes
from tests.support.repository import ROOT

NEEDS_TRITON = pytest.mark.triton


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        found: dict[str, Any] = json.loads(archive.read("manifest.json"))
    return found


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessPoolExecutor]:
    """Processes that compile, with an empty cache."""
    cache = str(tmp_path_factory.mktemp("cache"))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=build.prepare, initargs=(cache,)) as pool:
        yield pool


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the sources and the archive."""
    for name in SOURCES:
        shutil.copy(FOLDER / name, tmp_path)
    shutil.copy(ARCHIVE, tmp_path)
    return tmp_path


def rewrite(archive: Path, changes: Mapping[str, bytes | None]) -> None:
    """Replace, add or remove files of an archive."""
    with zipfile.ZipFile(archive) as read:
        files = {name: read.read(name) for name in read.namelist()} | changes
    with zipfile.ZipFile(archive, "w") as written:
        for name, content in files.items():
            if content is not None:
                written.writestr(name, content)


def test_the_archive_is_that_of_the_sources() -> None:
    assert not list(differences()), "compile it again: python -m kernels.card.build"


def test_a_check_names_what_differs(copy: Path) -> None:
    archive = copy / ARCHIVE.name
    assert not list(differences(archive, copy))
    with (copy / "choice.py").open("a") as source:
        source.write("\n")
    (copy / "places.py").unlink()
    changes = {"80/embed.cubin": b"another", "90/embed.cubin": None, "extra": b"", "ptx/embed.ptx": b"another"}
    rewrite(archive, changes)
    assert list(differences(archive, copy)) == [
        "choice.py",
        "places.py",
        "80/embed.cubin is not that of the manifest",
        "90/embed.cubin is not that of the manifest",
        "ptx/embed.ptx is not that of the manifest",
        "extra is no file of the manifest",
    ]


def test_a_check_ends_with_1_and_one_line(copy: Path) -> None:
    def check(archive: Path) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "kernels.card.build", "--check", "--output", archive]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout, ran.stderr

    assert check(ARCHIVE) == (0, "", "")
    line = "lingon: error: the archive of kernels is not current: {}\n"
    assert check(copy / "none.zip") == (1, "", line.format("none.zip is missing"))
    manifest = json.loads(zipfile.ZipFile(ARCHIVE).read("manifest.json"))
    rewrite(copy / ARCHIVE.name, {"manifest.json": json.dumps(manifest | {"triton": "3.8.0"}).encode()})
    assert check(copy / ARCHIVE.name) == (1, "", line.format("it is from Triton 3.8.0, not 3.9.0"))


def test_every_image_has_the_parameters_of_the_manifest_and_two_of_triton(manifest: dict[str, Any]) -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        for name, kernel in manifest["kernels"].items():
            expected = [SIZES[letter] for letter in kernel["parameters"]] + [8, 8]
            for architecture in ARCHITECTURES:
                assert parameter_sizes(archive.read(f"{architecture}/{name}.cubin")) == expected, name
            text = archive.read(f"ptx/{name}.ptx").decode()
            kinds = re.findall(r"^\s+\.param \.([usf])(?:32|64)\b", text, re.MULTILINE)
            assert len(kinds) == len(expected), name
            assert re.search(rf"^\.visible \.entry {name}\($", text, re.MULTILINE)
            assert ".target sm_80\n" in text
            assert ".version 8.0\n" in text


def test_no_image_needs_more_shared_memory_than_every_card_has(manifest: dict[str, Any]) -> None:
    for kernel in manifest["kernels"].values():
        assert set(kernel["shared"]) == set(kernel["sha256"]) == {*map(str, ARCHITECTURES), "ptx"}
        assert max(kernel["shared"].values()) <= 99 * 1024


@NEEDS_TRITON
def test_the_manifest_is_that_of_the_table(manifest: dict[str, Any], compiler: ProcessPoolExecutor) -> None:
    found = {
        name: (kernel["parameters"], kernel["warps"], kernel["block"]) for name, kernel in manifest["kernels"].items()
    }
    assert found == compiler.submit(_table).result()


def _table() -> dict[str, tuple[str, int, dict[str, int]]]:
    from kernels.card.table import kernels

    return {name: (kernel.parameters, kernel.warps, dict(kernel.constants)) for name, kernel in kernels().items()}


COMPILED = ("linear_rms_k256_m16", "greedy_step")


@NEEDS_TRITON
def test_compiling_again_gives_the_bytes_of_the_archive(compiler: ProcessPoolExecutor) -> None:
    jobs = [(name, architecture) for name in COMPILED for architecture in ARCHITECTURES]
    running = [compiler.submit(build.compile_named, *job) for job in jobs]
    with zipfile.ZipFile(ARCHIVE) as archive:
        for (name, architecture), made in zip(jobs, running, strict=True):
            assert archive.read(f"{architecture}/{name}.cubin") == made.result().cubin, (name, architecture)


@NEEDS_TRITON
def test_the_same_images_give_the_same_archive(compiler: ProcessPoolExecutor, tmp_path: Path) -> None:
    images = [compiler.submit(build.compile_named, "advance_step", each).result() for each in (80, 90)]
    archives = [tmp_path / "first.zip", tmp_path / "second.zip"]
    assert compiler.submit(_write, archives, images).result() is None
    assert archives[0].read_bytes() == archives[1].read_bytes()


def _write(archives: list[Path], images: list[Image]) -> None:
    for archive in archives:
        build.write(archive, images)


@NEEDS_TRITON
@pytest.mark.parametrize("architecture", [80, 90, 100])
@pytest.mark.parametrize("kind", ["linear_none", "linear_layer_k512", "linear_rms_k1024", "choose_t1_m"])
def test_products_read_weights_16_bytes_at_once(
    compiler: ProcessPoolExecutor, kind: str, architecture: int, manifest: dict[str, Any]
) -> None:
    names = [name for name in manifest["kernels"] if name.startswith(kind)]
    with zipfile.ZipFile(ARCHIVE) as archive:
        cubins = [archive.read(f"{architecture}/{name}.cubin") for name in names]
    for name, code in zip(names, compiler.map(_disassembled, cubins), strict=True):
        wide = len(re.findall(r"\b(?:LDG|LDGSTS)\.E(?:\.\w+)*\.128\b", code))
        narrow = len(re.findall(r"\bLDG\.E(?:\.U16)?(?:\.CONSTANT)?\b(?!\.)", code))
        assert wide >= 8, name
        assert narrow <= 4, f"{name}: only the bias and the residual are few enough"
        assert "HMMA.16816.F32" in code
        assert not re.search(r"\b(HGMMA|UTC\w*MMA)\b", code), name


def _disassembled(cubin: bytes) -> str:
    return build.run_tool("nvdisasm", "-c", cubin)


CHANGES = {
    "spills": (("linear_layer_k1024_m16", dict(BN=32), 4, 80), "spills registers"),
    "shared memory": (("linear_none_m32", dict(BK=256), 4, 80), "bytes of shared memory, more than 101376"),
    "warp groups of sm_90": (("linear_none_m32", dict(BM=64), 4, 90), "has wgmma, which adds in another order"),
    "warp groups of sm_100": (("linear_none_m32", dict(BM=128), 4, 100), "has tcgen05, which adds in another order"),
}
"""A kernel with other constants, warps and architecture, and why it is refused."""


@NEEDS_TRITON
@pytest.mark.parametrize("change", CHANGES)
def test_a_kernel_that_breaks_a_law_is_refused_in_one_line(compiler: ProcessPoolExecutor, change: str) -> None:
    job, reason = CHANGES[change]
    line = compiler.submit(_refusal, *job).result()
    assert line.startswith(f"{job[0]} for sm_{job[3]} ")
    assert reason in line
    assert "\n" not in line


def _refusal(name: str, constants: dict[str, int], warps: int, architecture: int) -> str:
    from kernels.card.table import kernels

    kernel = kernels()[name]
    changed = replace(kernel, constants={**kernel.constants, **constants}, warps=warps)
    try:
        build.compile_kernel(name, changed, architecture)
    except build.BuildError as error:
        return str(error)
    raise AssertionError(f"{name} is not refused")


@NEEDS_TRITON
def test_tiles_that_add_along_rows_in_another_order_are_refused(compiler: ProcessPoolExecutor) -> None:
    names = ("linear_layer_k256_m16", "linear_layer_k256_m32")
    first, second = compiler.map(build.compile_named, names, (80, 80))
    assert len(first.reductions) == 2, "the sums of mean and deviation"
    build.check_reductions([first, second])
    other = replace(second, reductions=tuple(each.replace("=32", "=16") for each in second.reductions))
    with pytest.raises(build.BuildError, match="linear_layer_k256_m32 adds along rows in another order"):
        build.check_reductions([first, other])


def test_without_triton_the_build_says_so_in_one_line(tmp_path: Path) -> None:
    code = "import sys; sys.modules['triton'] = None; from kernels.card.build import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "--output", tmp_path / "made.zip"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    line = "lingon: error: Triton is not installed: pip install triton==3.9.0\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", line)
