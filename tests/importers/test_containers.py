"""Every reader of models of Transformers takes the tensors from each container that these are published in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lingon.errors import SourceModelError
from lingon.importers import pipeline
from lingon.importers.files.tensors import INDEX, PICKLED, SAFETENSORS, open_tensors
from lingon.importers.pipeline import ImportSettings
from tests.support.foreign_models import save_fsmt, save_multilingual, save_opus_mt, save_t5, silent

ENGLISH_GERMAN = ImportSettings(languages=(["en"], ["de"]))
MODELS: dict[str, Callable[[Path], Path]] = {
    "OPUS-MT": save_opus_mt,
    "M2M-100": lambda folder: save_multilingual(folder, "m2m_100"),
    "SMaLL-100": lambda folder: save_multilingual(folder, "small100"),
    "NLLB-200": lambda folder: save_multilingual(folder, "nllb"),
    "mBART-50": lambda folder: save_multilingual(folder, "mbart50"),
    "MADLAD-400": lambda folder: save_t5(folder, "madlad"),
    "FSMT": save_fsmt,
}
Tensors = dict[str, Tensor]
Save = Callable[[Tensors, Path], None]


def halves(tensors: Tensors) -> tuple[Tensors, Tensors]:
    """Return the tensors in two parts, neighbours in different ones."""
    names = sorted(tensors)
    return {name: tensors[name] for name in names[::2]}, {name: tensors[name] for name in names[1::2]}


def save_index(folder: Path, name: str, parts: tuple[Tensors, Tensors], files: list[str]) -> None:
    places = {tensor: file for part, file in zip(parts, files, strict=True) for tensor in part}
    (folder / f"{name}{INDEX}").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))


def save_shards(tensors: Tensors, folder: Path) -> None:
    parts, files = halves(tensors), [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for part, file in zip(parts, files, strict=True):
        save_file(part, folder / file)
    save_index(folder, SAFETENSORS, parts, files)


def save_pickled_shards(tensors: Tensors, folder: Path) -> None:
    parts, files = halves(tensors), [f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)]
    for part, file in zip(parts, files, strict=True):
        torch.save(part, folder / file)
    save_index(folder, PICKLED, parts, files)


def save_pickle(tensors: Tensors, folder: Path) -> None:
    torch.save(tensors, folder / PICKLED)


def save_old_pickle(tensors: Tensors, folder: Path) -> None:
    """Save a pickle as PyTorch did before 1.6."""
    torch.save(tensors, folder / PICKLED, _use_new_zipfile_serialization=False)


CONTAINERS: dict[str, tuple[Save, int]] = {
    "safetensors in shards": (save_shards, 3),
    "a pickle": (save_pickle, 1),
    "a pickle before 1.6": (save_old_pickle, 1),
    "pickles in shards": (save_pickled_shards, 3),
}
"""What saves each container, and its number of files."""


@pytest.fixture(scope="module", params=MODELS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS[request.param](tmp_path_factory.mktemp("containers") / "whole")


def saved_again(whole: Path, folder: Path, save: Save) -> Path:
    """Return a copy of a folder whose tensors are in another container."""
    shutil.copytree(whole, folder)
    (folder / SAFETENSORS).unlink()
    save(load_file(whole / SAFETENSORS), folder)
    return folder


@pytest.mark.parametrize("container", CONTAINERS)
def test_the_weights_and_the_digests_are_those_of_the_container(whole: Path, tmp_path: Path, container: str) -> None:
    save, count = CONTAINERS[container]
    other = saved_again(whole, tmp_path / "other", save)
    new = {path.name for path in other.iterdir()} - {path.name for path in whole.iterdir()}
    assert len(new) == count
    first, second = (pipeline.read_source(each, ENGLISH_GERMAN, silent).checkpoint for each in (whole, other))
    for name, weight in first.model.named_parameters():
        assert torch.equal(weight, second.model.get_parameter(name)), name
    assert second.config.origin is not None
    assert new <= set(second.config.origin.files)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: (folder / "pytorch_model-00002-of-00002.bin").unlink(),
            r"00002\.bin: No such file or directory",
        ),
        (lambda folder: edit_index(folder, {"x": "../x.bin"}), "'../x.bin' is not the name of a file beside it"),
        (lambda folder: edit_index(folder, {"x": "pytorch_model-00001-of-00002.bin"}), "x is not in"),
        (
            lambda folder: shutil.copy(
                folder / "pytorch_model-00001-of-00002.bin", folder / "pytorch_model-00002-of-00002.bin"
            ),
            r"00002\.bin: has the tensor \S+, which a file before it has too",
        ),
        (
            lambda folder: (folder / f"{PICKLED}{INDEX}").write_text('{"weight_map": []}'),
            "has no weight_map of tensors",
        ),
    ],
)
def test_shards_that_contradict_their_index_are_one_line(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    save_pickled_shards({name: torch.ones(2) for name in "abcd"}, tmp_path)
    assert sorted(open_tensors(tmp_path)) == ["a", "b", "c", "d"]
    damage(tmp_path)
    with pytest.raises(SourceModelError, match=message) as caught:
        open_tensors(tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def edit_index(folder: Path, more: dict[str, str]) -> None:
    path = folder / f"{PICKLED}{INDEX}"
    found = json.loads(path.read_text())
    path.write_text(json.dumps({"weight_map": {**found["weight_map"], **more}}))
