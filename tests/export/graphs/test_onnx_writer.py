"""Weight files are on disk while they are built: without a name, aligned, and with an error if the disk is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from lingon.errors import BundleError
from lingon.export.graphs.onnx_writer import ALIGNMENT, WeightFiles


def test_each_tensor_is_where_its_initializer_says() -> None:
    weights = WeightFiles()
    tensors = {f"w{size}": np.arange(size, dtype=np.float32) for size in (1, 3, 40, 1000)}
    written = {name: weights.add("fp32.bin", name, values) for name, values in tensors.items()}
    content = weights.contents()["fp32.bin"]
    assert len(content) == weights.size("fp32.bin")
    for name, values in tensors.items():
        place = {entry.key: entry.value for entry in written[name].external_data}
        offset, length = int(place["offset"]), int(place["length"])
        assert offset % ALIGNMENT == 0
        assert content[offset : offset + length] == values.tobytes()


def test_nothing_stays_in_the_folder(tmp_path: Path) -> None:
    weights = WeightFiles(tmp_path / "models" / "new")  # which is made when the bundle is written
    weights.add("fp32.bin", "w", np.ones(1000, np.float32))
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_writes_a_part_is_followed_by_one_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda opened, content, at: whole(opened, content[:100], at))
    weights, values = WeightFiles(), np.arange(1000, dtype=np.float32)
    weights.add("fp32.bin", "w", values)
    assert bytes(weights.contents()["fp32.bin"]) == values.tobytes()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(BundleError, match=r"weights cannot be written \(No space left on device\)"):
        WeightFiles(tmp_path).add("fp32.bin", "w", np.ones(3, np.float32))
