"""A bundle whose files were changed after it was published is refused at once, by name, and never served."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lingon.bundle.names import MANIFEST
from lingon.bundle.store import MAX_FILE_BYTES, open_bundle
from tests.support.bundles import copy, refusal, sign
from tests.support.echo_engine import tokenizer_model
from tests.support.shipped_model import bundle

FILES = sorted([*bundle().manifest.checksums, MANIFEST])
FEW = [MANIFEST, "tokenizer.model", "int8/decoder.onnx", "weights/int8.bin", "fp16/encoder.onnx", "MODEL_CARD.md"]


def test_an_unchanged_copy_is_served(folder: Path):
    with pytest.raises(AssertionError, match="Translator"):
        refusal(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_a_file_with_a_flipped_bit_is_refused(folder: Path, name: str, place: float):
    content = bytearray((folder / name).read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    (folder / name).write_bytes(content)
    assert refusal(folder).startswith(f"{folder / name}: ")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def missing(path: Path) -> None:
    path.unlink()


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_a_link(path: Path) -> None:
    outside = next(folder for folder in path.parents if folder.name == "models").parent / path.name
    outside.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(outside)


def become_a_link_within(path: Path) -> None:
    path.rename(path.with_name(f"real-{path.name}"))
    path.symlink_to(f"real-{path.name}")


def become_endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_a_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # because the path of a socket may have 107 bytes at most
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)


def grow(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(MAX_FILE_BYTES[MANIFEST] + 1 if path.name == MANIFEST else path.stat().st_size + 2**28)


CHANGES = [
    cut,
    empty,
    missing,
    become_a_folder,
    become_a_link,
    become_a_link_within,
    become_endless,
    become_a_pipe,
    become_a_socket,
    grow,
]


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_another_kind_or_size_is_refused(folder: Path, name: str, change: Callable[[Path], None]):
    change(folder / name)
    line = refusal(folder)
    assert line.startswith(str(folder))
    assert name in line or (name == MANIFEST and change is missing)


def test_a_manifest_of_hundreds_of_megabytes_is_not_read(folder: Path):
    with (folder / MANIFEST).open("r+b") as file:
        file.truncate(300_000_000)
    assert refusal(folder) == f"{folder / MANIFEST}: has 300,000,000 bytes; 1,048,576 are the most"


def test_the_tokenizer_of_another_model_is_refused(folder: Path):
    (folder / "tokenizer.model").write_bytes(tokenizer_model())
    assert refusal(folder).startswith(f"{folder / 'tokenizer.model'}: was altered")


@pytest.mark.parametrize(("one", "other"), [("encoder", "decoder"), ("decoder", "decoder_shortlist")])
def test_two_swapped_graphs_are_refused(folder: Path, one: str, other: str):
    first, second = folder / f"int8/{one}.onnx", folder / f"int8/{other}.onnx"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert "was altered" in refusal(folder)


@pytest.mark.parametrize("name", ["more", "int8/more.onnx", "fp32/.hidden", "weights/more.bin", "other/deep/more"])
def test_a_file_that_the_manifest_does_not_list_is_refused(folder: Path, name: str):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    assert refusal(folder) == f"{folder / name}: the manifest does not list it"


@pytest.mark.parametrize("target", ["..", "/etc", "/dev/zero", "nowhere"])
def test_a_link_in_a_bundle_is_refused(folder: Path, target: str):
    (folder / "more").symlink_to(target)
    assert refusal(folder) == f"{folder / 'more'}: is a link; a bundle holds none"


def test_a_linked_folder_in_a_bundle_is_refused(folder: Path, tmp_path: Path):
    (folder / "weights").rename(tmp_path / "elsewhere")
    (folder / "weights").symlink_to(tmp_path / "elsewhere")
    assert refusal(folder) == f"{folder / 'weights'}: is a link; a bundle holds none"


def test_the_folder_of_a_bundle_may_be_a_link(folder: Path, tmp_path: Path):
    (tmp_path / "current").symlink_to(folder)
    with pytest.raises(AssertionError, match="Translator"):
        refusal(tmp_path / "current")


@pytest.mark.parametrize("change", [become_a_pipe, cut])
@pytest.mark.parametrize("name", [MANIFEST, "weights/int8.bin"])
def test_the_command_ends_with_one_line_and_never_serves(folder: Path, name: str, change: Callable[[Path], None]):
    change(folder / name)
    command = [sys.executable, "-m", "lingon", "serve", str(folder), "--port", "0", "--metrics-port", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(f"lingon: error: {folder}")
    assert name in last
    assert "Traceback" not in ran.stderr


@pytest.fixture
def tampered(tmp_path):
    folder = copy(tmp_path)
    weights = folder / "weights" / "int8.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    sign(folder)
    return open_bundle(folder)


def test_a_server_refuses_a_tampered_bundle_with_valid_checksums(tampered, tmp_path):
    tampered.verify()
    path = tmp_path / "trusted"
    path.write_text(f"{bundle().manifest_digest}  {bundle().label}/manifest.json\n")
    command = [sys.executable, "-m", "lingon", "serve", tampered.folder, "--trust", path, "--log-level", "error"]
    ran = subprocess.run(
        [*command, "--port", "0", "--metrics-port", "0"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"lingon: error: {tampered.folder}: is not trusted: {path} has the digest {bundle().manifest_digest} of "
        f"{bundle().label}, its manifest.json has {tampered.manifest_digest}\n"
    )
