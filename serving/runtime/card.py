"""The operators for cards: their library, and the archive of compiled kernels that it launches.

Both are optional: without them a card computes the standard graphs, and DeviceError says what is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lingon.errors import DeviceError
from lingon.serving.runtime.libraries import unusable

if TYPE_CHECKING:
    from onnxruntime import SessionOptions

LIBRARY = Path(__file__).with_name("lingon_card.so")
ARCHIVE = Path(__file__).with_name("card_kernels.zip")

MANIFEST = "manifest.json"
PTX = "ptx"
"""What the driver compiles for a card that the archive has no binary for."""

DAMAGES: tuple[type[Exception], ...] = OSError, EOFError, KeyError, ValueError, RuntimeError, zipfile.BadZipFile
"""What reading a damaged archive raises. RuntimeError: this Python cannot read its compression."""

with contextlib.suppress(ImportError):
    from lzma import LZMAError

    DAMAGES += (LZMAError,)

OLDEST = 8, 0  # compute capability
MAJOR, MINOR = 75, 76  # attributes of a device in the driver's interface: the two parts of its compute capability


class Kernel(NamedTuple):
    """A kernel for one architecture.

    image: cubin or PTX
    parameters: one letter for each argument: p pointer, i int32, f float32
    warps: of a program; shared: its bytes of dynamic shared memory
    """

    name: str
    image: bytes
    parameters: str
    warps: int
    shared: int


def card_missing(device: int = 0) -> str | None:
    """Return why graphs in these operators cannot run on a device and what to do, in one line, or None if they can.

    See lingon.serving.runtime.device.cuda_missing for the provider that they need as well.
    """
    try:
        add_kernels(device)
    except DeviceError as error:
        return str(error)
    return None


def register_card_operators(options: SessionOptions, device: int = 0) -> None:
    """Make a session of CUDAExecutionProvider know the operators, with the kernels for a device. Raises DeviceError."""
    add_kernels(device)
    options.register_custom_ops_library(str(LIBRARY))


def add_kernels(device: int = 0, *, archive: Path = ARCHIVE) -> str:
    """Hand the kernels for a device to the library, and return their architecture, such as 90, or PTX.

    The sessions that are made afterwards load them. Raises DeviceError.
    """
    capability, loaded = compute_capability(device), library()
    if loaded is None:
        raise DeviceError(unusable(LIBRARY, "operators for cards"))
    manifest = _read_manifest(archive)
    architecture = architecture_for(capability, _architectures(manifest))
    for kernel in _read_kernels(archive, manifest, architecture):
        name, parameters = kernel.name.encode(), kernel.parameters.encode()
        if loaded.lingon_card_add_kernel(
            name, kernel.image, len(kernel.image), parameters, kernel.warps, kernel.shared
        ):
            raise DeviceError(f"{archive.name} is not of the version of {LIBRARY.name}, which {_last_error(loaded)}")
    return architecture


@functools.cache
def library() -> ctypes.PyDLL | None:
    """Return the library, or None if this machine cannot load it. Its calls are too short to release the GIL."""
    try:
        loaded = ctypes.PyDLL(str(LIBRARY))
        size, text = ctypes.c_size_t, ctypes.c_char_p
        loaded.lingon_card_add_kernel.argtypes = [text, text, size, text, ctypes.c_int, ctypes.c_int]
        loaded.lingon_card_error.restype = text
        loaded.lingon_card_clear.restype = None
    except (OSError, AttributeError):  # AttributeError: it was built from older sources
        return None
    return loaded


def compute_capability(device: int = 0) -> tuple[int, int]:
    """Return the compute capability of a device, as the driver says. Raises DeviceError."""
    name = os.environ.get("LINGON_CUDA_DRIVER") or "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError as error:
        raise DeviceError(f"there is no NVIDIA driver ({name} is not found)") from error

    def ask(function: str, *arguments: Any) -> None:
        if number := driver[function](*arguments):
            raise DeviceError(f"device {device}: {function} of the NVIDIA driver failed with error {number}")

    handle, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    ask("cuInit", 0)
    ask("cuDeviceGet", ctypes.byref(handle), device)
    ask("cuDeviceGetAttribute", ctypes.byref(major), MAJOR, handle)
    ask("cuDeviceGetAttribute", ctypes.byref(minor), MINOR, handle)
    return major.value, minor.value


def architecture_for(capability: tuple[int, int], architectures: Collection[str]) -> str:
    """Return which architecture of an archive a device runs: the newest one that it has, or PTX.

    A binary runs on devices of its major version that are as new or newer. PTX is compiled by the driver. Raises
    DeviceError for a device that is too old.
    """
    major, minor = capability
    if capability < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise DeviceError(f"the operators for cards need compute capability {least}, this card has {major}.{minor}")
    known = [int(name) for name in architectures if name != PTX]
    fitting = [each for each in known if each // 10 == major and each % 10 <= minor]
    return str(max(fitting)) if fitting else PTX


def _last_error(loaded: ctypes.PyDLL) -> str:
    message: bytes = loaded.lingon_card_error()
    return message.decode()


def _read_manifest(archive: Path) -> dict[str, dict[str, Any]]:
    """Return what an archive says of its kernels, by name."""
    if not archive.is_file():
        raise DeviceError(f"the archive of kernels for cards, {archive}, is missing")
    try:
        with zipfile.ZipFile(archive) as opened:
            kernels: dict[str, dict[str, Any]] = json.loads(opened.read(MANIFEST))["kernels"]
    except DAMAGES as error:
        raise DeviceError(f"{archive} is no archive of kernels for cards: {error}") from error
    return kernels


def _architectures(manifest: dict[str, dict[str, Any]]) -> set[str]:
    """Return the architectures that an archive has all kernels for."""
    by_kernel = [set(entry["sha256"]) for entry in manifest.values()]
    return set.intersection(*by_kernel) if by_kernel else set()


def _read_kernels(archive: Path, manifest: dict[str, dict[str, Any]], architecture: str) -> Iterator[Kernel]:
    """Yield all kernels of an archive for an architecture."""
    suffix = "ptx" if architecture == PTX else "cubin"
    with zipfile.ZipFile(archive) as opened:
        for name, entry in manifest.items():
            path = f"{architecture}/{name}.{suffix}"
            try:
                image = opened.read(path)
            except DAMAGES as error:
                raise DeviceError(f"{archive} is damaged: {path} cannot be read") from error
            if hashlib.sha256(image).hexdigest() != entry["sha256"].get(architecture):
                raise DeviceError(f"{archive} is damaged: {path} has not the SHA-256 of its manifest")
            yield Kernel(name, image, entry["parameters"], entry["warps"], entry["shared"][architecture])
