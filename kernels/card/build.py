"""Compiles the kernels of this folder into the archive that the server loads: `python -m kernels.card.build`.

It needs Triton in the version below, no card and no CUDA toolkit. The archive is a part of the repository, because
compiling takes minutes: `--check` says whether it is that of the sources, and needs no Triton.

The archive is a zip file:
    manifest.json       the version of Triton, the hashes of the sources, and by kernel what a launch needs, see Images
    ARCH/NAME.cubin     machine code of NAME for the compute capability ARCH
    ptx/NAME.ptx        of sm_80, for cards of other architectures: their drivers compile it

The same sources and the same Triton give the same bytes.

Exit codes: 0 the archive is written, or current; 1 it cannot be, or differs. One line says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.card.table import Kernel

FOLDER = Path(__file__).resolve().parent
ARCHIVE = FOLDER.parent.parent / "lingon" / "serving" / "runtime" / "card_kernels.zip"
SOURCES = ("attention.py", "choice.py", "places.py", "products.py", "search.py", "table.py")
"""The files that decide what is compiled."""

TRITON = "3.9.0"  # the version; another one may round differently
ARCHITECTURES = (80, 86, 89, 90, 100, 120)  # compute capabilities, times ten
OF_PTX = 80  # the architecture of the PTX. Newer ones are for one architecture alone: sm_90a, sm_100a
PTX_VERSION = 80  # times ten: drivers of CUDA 12.0 read it, and need 12.9 for what Triton would write
MOST_SHARED = 99 * 1024  # bytes that a program may have on sm_86, sm_89 and sm_120
OTHER_PRODUCTS = re.compile(r"\b(wgmma|tcgen05)\b")
"""Matrix instructions of warp groups (HGMMA, UTCHMMA), which add in another order than those of single warps."""

SCRATCH = 2  # pointers that Triton adds to the parameters of every kernel: scratch memory, which none needs
DATE = (1980, 1, 1, 0, 0, 0)  # of all files in the archive
SIZES = {"p": 8, "i": 4, "f": 4}  # bytes, by the letter of a parameter


class BuildError(Exception):
    """The archive cannot be built. The message is one line."""


@dataclass(frozen=True, slots=True)
class Image:
    """A kernel for one architecture.

    shared: bytes of dynamic shared memory of a launch
    reductions: by sum or maximum along a row, how its values are divided, see row_reductions
    """

    name: str
    architecture: int
    cubin: bytes
    ptx: bytes
    shared: int
    registers: int
    reductions: tuple[str, ...]


def compile_named(name: str, architecture: int) -> Image:
    """Return the image of a kernel of the table. Raises BuildError."""
    from kernels.card.table import kernels

    return compile_kernel(name, kernels()[name], architecture)


def compile_kernel(name: str, kernel: Kernel, architecture: int) -> Image:
    """Return the image of a kernel. Raises BuildError if it is not as the archive needs it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = triton.jit(kernel.function.fn, repr=lambda _: name)  # the name of the function in the image
    source = ASTSource(function, kernel.types, dict(kernel.constants), kernel.hints)
    # Fusion of products and sums has to be given, because its default changes with the version.
    options = {"num_warps": kernel.warps, "num_stages": kernel.stages, "enable_fp_fusion": True}
    if architecture == OF_PTX:
        options["ptx_version"] = PTX_VERSION
    what, target = f"{name} for sm_{architecture}", GPUTarget("cuda", architecture, 32)
    # Without a limit the assembler may spill a few registers, so that more programs run at once.
    for limit in ({}, {"maxnreg": min(255, 65536 // (32 * kernel.warps))}):
        try:
            compiled = triton.compile(source, target=target, options=options | limit)
        except triton.TritonError as error:
            raise BuildError(f"{what} does not compile: {' '.join(str(error).split())}") from error
        usage = resources(compiled.asm["cubin"])
        if not usage["STACK"]:
            break
    metadata, cubin = compiled.metadata, compiled.asm["cubin"]
    if usage["STACK"] or usage["LOCAL"]:
        raise BuildError(f"{what} spills registers: {usage['STACK']} bytes of stack, {usage['LOCAL']} of local memory")
    if metadata.shared > MOST_SHARED:
        raise BuildError(f"{what} takes {metadata.shared} bytes of shared memory, more than {MOST_SHARED}")
    if metadata.global_scratch_size or metadata.profile_scratch_size:
        raise BuildError(f"{what} needs scratch memory, which nothing gives it")
    if found := OTHER_PRODUCTS.search(compiled.asm["ptx"]):
        raise BuildError(f"{what} has {found[0]}, which adds in another order than the other kernels")
    if (sizes := parameter_sizes(cubin)) != [SIZES[each] for each in kernel.parameters] + SCRATCH * [8]:
        raise BuildError(f"{what} has parameters of {sizes} bytes, not those of the table")
    if (read := metadata.name) != name:
        raise BuildError(f"{what} has a function of the name {read}")
    return Image(
        name,
        architecture,
        cubin,
        compiled.asm["ptx"].encode(),
        metadata.shared,
        usage["REG"],
        row_reductions(compiled.asm["ttgir"]),
    )


def resources(cubin: bytes) -> dict[str, int]:
    """Return what an image takes: REG (registers of a thread), STACK, LOCAL and SHARED (bytes)."""
    found = re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", run_tool("cuobjdump", "-res-usage", cubin))
    return {name: int(value) for name, value in found}


def run_tool(program: str, option: str, cubin: bytes) -> str:
    """Return what a program of CUDA that comes with Triton says about an image."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tools / program), option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def parameter_sizes(cubin: bytes) -> list[int]:
    """Return the bytes of each parameter of the function in an image, in order.

    They are read from the attributes KPARAM_INFO of the section .nv.info.NAME: format 4, kind 0x17, size 12; then
    ordinal and offset of the parameter in 16 bits each, and its size from bit 18 on.
    """
    found = {}
    for at in (match.start() for match in re.finditer(rb"\x04\x17\x0c\x00", cubin)):
        index, ordinal, _, flags = (
            int.from_bytes(cubin[at + begin : at + end], "little")
            for begin, end in ((4, 8), (8, 10), (10, 12), (12, 16))
        )
        if index == 0:
            found[ordinal] = flags >> 18
    return [found[ordinal] for ordinal in sorted(found)]


def row_reductions(ttgir: str) -> tuple[str, ...]:
    """Return how each sum or maximum of floats along a row divides the row: its width, then the layout along it.

    The order of the additions follows from this, so it has to be the same in tiles of different numbers of rows.
    """
    layouts = dict(re.findall(r"^#(\w+) = #ttg\.\w+<\{(.*)\}>", ttgir, re.MULTILINE))
    pattern = r"\"tt\.reduce\".*?axis = 1 : i32.*?\}\) : \(tensor<\d+x(\d+)xf32, #(\w+)>\)"
    return tuple(
        " ".join(
            [width, *(f"{name}={along}" for name, along in re.findall(r"(\w+) = \[\d+, (\d+)\]", layouts[layout]))]
        )
        for width, layout in re.findall(pattern, ttgir, re.DOTALL)
    )


def check_reductions(images: list[Image]) -> None:
    """Raise BuildError if kernels that differ only in rows or written logits would add in another order."""
    found: dict[tuple[str, int], Image] = {}
    for image in images:
        family = re.sub(r"_m\d+(n\d+)?(_logits)?$", "", image.name)
        first = found.setdefault((family, image.architecture), image)
        if image.reductions != first.reductions:
            where = f"for sm_{image.architecture}"
            raise BuildError(f"{image.name} adds along rows in another order than {first.name} {where}")


def compile_all(processes: int, cache: str) -> list[Image]:
    """Return all images, by name and architecture. Progress goes to standard error."""
    from kernels.card.table import kernels

    jobs = [(name, architecture) for name in kernels() for architecture in ARCHITECTURES]
    jobs.sort(key=lambda job: ("choose" not in job[0], "beam" not in job[0]))  # what takes longest first
    images, spawn = [], multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=prepare, initargs=(cache,)) as pool:
        running = [pool.submit(compile_named, *job) for job in jobs]
        for done in as_completed(running):
            if error := done.exception():
                pool.shutdown(wait=False, cancel_futures=True)
                raise error
            images.append(done.result())
            if sys.stderr.isatty() or len(images) % 20 == 0:
                print(f"\rcompiled {len(images)} of {len(jobs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return sorted(images, key=lambda image: (image.name, image.architecture))


def prepare(cache: str) -> None:
    """Set what Triton reads from the environment. An image without line numbers is a third as large."""
    os.environ |= {"TRITON_CACHE_DIR": cache, "TRITON_DISABLE_LINE_INFO": "1"}
    os.environ.pop("TRITON_INTERPRET", None)


def manifest_of(images: list[Image]) -> dict[str, Any]:
    """Return the manifest: by kernel, its parameters, warps, constants, and by architecture bytes and hash."""
    from kernels.card.table import kernels

    table = kernels()
    found: dict[str, Any] = {}
    for image in images:
        kernel = table[image.name]
        entry = found.setdefault(
            image.name,
            {
                "parameters": kernel.parameters,
                "warps": kernel.warps,
                "block": dict(kernel.constants),
                "shared": {},
                "registers": {},
                "sha256": {},
            },
        )
        names = [str(image.architecture), *(["ptx"] if image.architecture == OF_PTX else [])]
        for name in names:
            entry["shared"][name] = image.shared
            entry["sha256"][name] = _sha256(image.ptx if name == "ptx" else image.cubin)
        entry["registers"][str(image.architecture)] = image.registers
    return {"triton": TRITON, "sources": hashes_of_sources(), "kernels": found}


def hashes_of_sources(folder: Path = FOLDER) -> dict[str, str]:
    """Return the SHA-256 of each source that is there."""
    return {name: _sha256((folder / name).read_bytes()) for name in SOURCES if (folder / name).is_file()}


def write(archive: Path, images: list[Image]) -> None:
    """Write the archive, in place of another one at once."""
    files = {"manifest.json": json.dumps(manifest_of(images), indent=1, sort_keys=True).encode()}
    for image in images:
        files[f"{image.architecture}/{image.name}.cubin"] = image.cubin
        if image.architecture == OF_PTX:
            files[f"ptx/{image.name}.ptx"] = image.ptx
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".card-kernels-") as folder:
        made = Path(folder, archive.name)
        with zipfile.ZipFile(made, "w") as written:
            for name, content in files.items():
                entry = zipfile.ZipInfo(name, DATE)
                entry.external_attr = 0o644 << 16
                written.writestr(entry, content, zipfile.ZIP_LZMA)
        made.chmod(0o644)
        os.replace(made, archive)


def differences(archive: Path = ARCHIVE, folder: Path = FOLDER) -> Iterator[str]:
    """Yield how an archive differs from what the sources would give."""
    if not archive.is_file():
        yield f"{archive.name} is missing"
        return
    with zipfile.ZipFile(archive) as read:
        manifest = json.loads(read.read("manifest.json"))
        if manifest["triton"] != TRITON:
            yield f"it is from Triton {manifest['triton']}, not {TRITON}"
        yield from _other(manifest["sources"], hashes_of_sources(folder))
        expected = {"manifest.json"}
        for name, kernel in manifest["kernels"].items():
            files = {key: _path_of(name, key) for key in [*map(str, ARCHITECTURES), "ptx"]}
            expected |= set(files.values())
            hashes = {key: _sha256(read.read(path)) for key, path in files.items() if path in read.namelist()}
            yield from (
                f"{files.get(key, key)} is not that of the manifest" for key in _other(kernel["sha256"], hashes)
            )
        yield from (f"{name} is no file of the manifest" for name in sorted(set(read.namelist()) - expected))


def _path_of(name: str, key: str) -> str:
    return f"ptx/{name}.ptx" if key == "ptx" else f"{key}/{name}.cubin"


def _other(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the keys that only one has, or with another value."""
    return sorted(key for key in {*first, *second} if first.get(key) != second.get(key))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def build(archive: Path, processes: int, cache: str | None = None) -> str:
    """Write the archive and return what it holds. Raises BuildError.

    cache: a folder of what Triton compiled before; by default an empty one
    """
    try:
        import triton
    except ImportError:
        raise BuildError(f"Triton is not installed: pip install triton=={TRITON}") from None
    if triton.__version__ != TRITON:
        raise BuildError(f"Triton is {triton.__version__}, not {TRITON}, which may round differently")
    before = hashes_of_sources()
    with tempfile.TemporaryDirectory(prefix="card-kernels-") as empty:
        images = compile_all(processes, cache or empty)
    check_reductions(images)
    if changed := _other(before, hashes_of_sources()):
        raise BuildError(f"{', '.join(changed)} changed in the meantime")
    write(archive, images)
    kernels = len({image.name for image in images})
    return f"{kernels} kernels for {len(ARCHITECTURES)} architectures, {archive.stat().st_size / 1e6:.2f} MB"


def main() -> int:
    """Build or check the archive that the arguments describe."""
    parser = argparse.ArgumentParser(description="Compile the kernels of the operators on CUDA.")
    parser.add_argument("--output", type=Path, default=ARCHIVE, help="Path. Default: where the server loads it.")
    parser.add_argument(
        "--check", action="store_true", help="Compile nothing; end with 1 if the archive is not current."
    )
    parser.add_argument("--cache", help="A folder of Triton, to compile only what changed. Default: an empty one.")
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="Default: the number of cores."
    )
    arguments = parser.parse_args()
    if arguments.check:
        if found := list(differences(arguments.output)):
            print(f"lingon: error: the archive of kernels is not current: {', '.join(found)}", file=sys.stderr)
            return 1
        return 0
    start = time.monotonic()
    try:
        made = build(arguments.output, arguments.processes, arguments.cache)
    except BuildError as error:
        print(f"lingon: error: {error}", file=sys.stderr)
        return 1
    print(f"lingon: compiled {made}, in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
