"""The kernels for cards: which of an archive fit a device, and what is said if anything is missing."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.errors import DeviceError
from lingon.serving.runtime import card as runtime
from lingon.serving.runtime.card import PTX, add_kernels, architecture_for, card_missing, compute_capability
from tests.support.card_emulation import EmulatedCard, emulated_card, node_graph, write_archive

ALL = ("80", "86", "89", "90", "100", "120", "ptx")


@pytest.fixture
def card() -> Iterator[EmulatedCard]:
    with emulated_card(compute=False, kernels=False) as made:
        yield made


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "card_kernels.zip")


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        *(((8, 0), "80"), ((8, 6), "86"), ((8, 7), "86"), ((8, 9), "89"), ((9, 0), "90")),
        *(((10, 0), "100"), ((10, 3), "100"), ((12, 0), "120"), ((12, 1), "120")),
        *(((11, 0), PTX), ((13, 0), PTX)),
    ],
)
def test_a_device_runs_the_newest_binary_of_its_major_version_or_else_ptx(capability: tuple[int, int], expected: str):
    assert architecture_for(capability, ALL) == expected


def test_a_binary_that_is_newer_than_the_device_is_not_chosen():
    assert architecture_for((8, 6), ("80", "89", "ptx")) == "80"
    assert architecture_for((9, 0), ("80", "89", "ptx")) == PTX


def test_a_device_that_is_too_old_is_refused_with_the_bound_and_its_value():
    with pytest.raises(DeviceError) as caught:
        architecture_for((7, 5), ALL)
    assert str(caught.value) == "the operators for cards need compute capability 8.0, this card has 7.5"


@pytest.mark.native
def test_the_driver_says_the_compute_capability(card: EmulatedCard):
    card.set_capability(8, 9)
    assert compute_capability() == (8, 9)


@pytest.mark.native
@pytest.mark.parametrize(("capability", "architecture"), [((8, 9), "89"), ((9, 0), "90"), ((12, 0), PTX)])
def test_the_images_of_the_device_are_what_a_session_loads(
    card: EmulatedCard, tmp_path: Path, capability: tuple[int, int], architecture: str
):
    """The images of all other architectures are no images, and the hashes of all are right."""
    right = write_archive(tmp_path / "right.zip")
    spoilt = tmp_path / "spoilt.zip"

    def change(manifest: dict[str, Any]) -> None:
        for entry in manifest["kernels"].values():
            for each in entry["sha256"]:
                if each != architecture:
                    entry["sha256"][each] = hashlib.sha256(b"spoilt").hexdigest()

    written = write_archive(tmp_path / "changed.zip", change)
    with zipfile.ZipFile(right) as read, zipfile.ZipFile(written) as other, zipfile.ZipFile(spoilt, "w") as made:
        for name in read.namelist():
            kept = name.startswith(f"{architecture}/")
            content = read.read(name) if kept else other.read(name) if name == "manifest.json" else b"spoilt"
            made.writestr(name, content)
    card.set_capability(*capability)
    assert add_kernels(archive=spoilt) == architecture
    rows = np.ones((1, 32), np.float16)
    graph = node_graph("Embed", [np.zeros(1, np.int64), rows], ["float16"], scale=1.0)
    card.session(graph).run(None, {"in.0": np.zeros(1, np.int64), "in.1": rows})
    assert [each.kernel for each in card.launches] == ["embed"]


@pytest.mark.native
def test_shared_memory_is_that_of_the_architecture(card: EmulatedCard, tmp_path: Path):
    def change(manifest: dict[str, Any]) -> None:
        manifest["kernels"]["embed"]["shared"] = {"80": 1, "86": 2, "89": 3, "90": 4, "ptx": 1234}

    card.set_capability(12, 0)
    add_kernels(archive=write_archive(tmp_path / "card_kernels.zip", change))
    rows = np.ones((1, 32), np.float16)
    graph = node_graph("Embed", [np.zeros(1, np.int64), rows], ["float16"], scale=1.0)
    card.session(graph).run(None, {"in.0": np.zeros(1, np.int64), "in.1": rows})
    assert card.launches[0].shared == 1234


def refusal(archive: Path) -> str:
    with pytest.raises(DeviceError) as caught:
        add_kernels(archive=archive)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_a_driver_it_says_so(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("LINGON_CUDA_DRIVER", str(tmp_path / "libcuda.so.1"))
    message = f"there is no NVIDIA driver ({tmp_path}/libcuda.so.1 is not found)"
    assert refusal(archive) == message
    assert card_missing() == message


@pytest.mark.native
@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGet", "cuDeviceGetAttribute"])
def test_an_error_of_the_driver_is_named(card: EmulatedCard, archive: Path, call: str):
    card.fail(call, 100)
    assert refusal(archive) == f"device 0: {call} of the NVIDIA driver failed with error 100"


@pytest.mark.native
def test_a_device_that_the_driver_does_not_have_is_named(card: EmulatedCard):
    assert card_missing(3) == "device 3: cuDeviceGet of the NVIDIA driver failed with error 101"


@pytest.mark.native
def test_a_card_that_is_too_old_is_refused(card: EmulatedCard, archive: Path):
    card.set_capability(7, 0)
    assert refusal(archive) == "the operators for cards need compute capability 8.0, this card has 7.0"


@pytest.mark.native
def test_without_the_library_it_says_what_to_do(
    card: EmulatedCard, archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(runtime, "LIBRARY", tmp_path / "lingon_card.so")
    runtime.library.cache_clear()
    missing = "the library of operators for cards is not built: `make kernels` builds it with a C++ compiler"
    assert refusal(archive) == missing
    (tmp_path / "lingon_card.so").write_bytes(b"no library")
    runtime.library.cache_clear()
    assert refusal(archive) == "lingon_card.so cannot be loaded on this machine: `make kernels` builds one for it"
    runtime.library.cache_clear()


@pytest.mark.native
def test_an_archive_that_is_missing_or_none_is_named(card: EmulatedCard, tmp_path: Path):
    path = tmp_path / "card_kernels.zip"
    assert refusal(path) == f"the archive of kernels for cards, {path}, is missing"
    path.write_bytes(b"no archive")
    assert refusal(path) == f"{path} is no archive of kernels for cards: File is not a zip file"


@pytest.mark.native
def test_an_image_with_another_hash_than_that_of_the_manifest_is_refused(card: EmulatedCard, tmp_path: Path):
    def change(manifest: dict[str, Any]) -> None:
        manifest["kernels"]["embed"]["sha256"]["90"] = "0" * 64

    path = write_archive(tmp_path / "card_kernels.zip", change)
    assert refusal(path) == f"{path} is damaged: 90/embed.cubin has not the SHA-256 of its manifest"
    card.set_capability(8, 9)
    assert add_kernels(archive=path) == "89"


@pytest.mark.native
def test_an_image_that_is_missing_is_named(card: EmulatedCard, archive: Path, tmp_path: Path):
    path = tmp_path / "less.zip"
    with zipfile.ZipFile(archive) as read, zipfile.ZipFile(path, "w") as made:
        for name in set(read.namelist()) - {"90/merge_t8.cubin"}:
            made.writestr(name, read.read(name))
    assert refusal(path) == f"{path} is damaged: 90/merge_t8.cubin cannot be read"


@pytest.mark.native
@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_LZMA])
def test_an_image_whose_bytes_changed_is_named(card: EmulatedCard, archive: Path, tmp_path: Path, kind: int):
    """The zip file has a checksum of its own, and compressed data may have no meaning any more."""
    path = tmp_path / "changed.zip"
    with zipfile.ZipFile(archive) as read, zipfile.ZipFile(path, "w", kind) as made:
        for name in read.namelist():
            made.writestr(name, read.read(name))
        changed = made.getinfo("90/embed.cubin")
    content = bytearray(path.read_bytes())
    begin = changed.header_offset + 30 + len(changed.filename)  # the size of its header
    settings = 9 if kind == zipfile.ZIP_LZMA else 0  # bytes of the compression's settings, before the data
    for place in range(begin + settings, begin + changed.compress_size):
        content[place] ^= 0xFF
    path.write_bytes(content)
    assert refusal(path) == f"{path} is damaged: 90/embed.cubin cannot be read"


@pytest.mark.native
def test_an_archive_of_another_version_is_refused(card: EmulatedCard, tmp_path: Path):
    def change(manifest: dict[str, Any]) -> None:
        manifest["kernels"]["embed"]["parameters"] = "pppppif"

    path = write_archive(tmp_path / "card_kernels.zip", change)
    reason = "passes pppppifi to embed, whose image takes pppppif"
    assert refusal(path) == f"card_kernels.zip is not of the version of lingon_card.so, which {reason}"
