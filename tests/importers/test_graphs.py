"""The weights of ONNX exports are those of the model that was exported; a graph that hides them is refused."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import helper

from lingon.errors import SettingsError, SourceModelError
from lingon.importers import pipeline
from lingon.importers.files.tensors import DECODERS, ENCODER, ORIGINAL
from lingon.importers.pipeline import ImportSettings
from tests.support.foreign_models import (
    merge,
    save_beside,
    save_graphs,
    save_multilingual,
    save_opus_mt,
    save_t5,
    silent,
)

Save = Callable[[Path], Path]
MODELS: dict[str, Save] = {
    "opus": save_opus_mt,
    "opus with two vocabularies": lambda folder: save_opus_mt(folder, separate=True),
    "m2m": lambda folder: save_multilingual(folder, "m2m_100"),
    "mbart": lambda folder: save_multilingual(folder, "mbart50"),
    "t5": lambda folder: save_t5(folder, "t5"),
    "mt5": lambda folder: save_t5(folder, "mt5"),
}
PAIR = ImportSettings(languages=(["en"], ["de"]))


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and its export."""
    root = tmp_path_factory.mktemp("graphs")
    model = save_opus_mt(root / "model")
    return model, save_graphs(model, root / "export")


@pytest.fixture
def changed(opus: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the export, which a test may change."""
    return Path(shutil.copytree(opus[1], tmp_path / "export"))


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return dict(pipeline.read_source(folder, PAIR, silent).checkpoint.model.state_dict())


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_are_those_of_the_model(name: str, tmp_path: Path) -> None:
    model = MODELS[name](tmp_path / "model")
    assert same(weights_of(model), weights_of(save_graphs(model, tmp_path / "export")))


def test_norms_of_many_nodes_are_read(opus: tuple[Path, Path], tmp_path: Path) -> None:
    """Before the operator set 17 ONNX had no norm of layers."""
    assert same(weights_of(opus[0]), weights_of(save_graphs(opus[0], tmp_path / "export", opset=14)))


def test_decoders_in_one_graph_are_read(opus: tuple[Path, Path], changed: Path) -> None:
    merge(changed)
    assert same(weights_of(opus[0]), weights_of(changed))


def test_weights_that_are_equal_may_have_one_name(tmp_path: Path) -> None:
    """The exporter writes equal tensors once; biases that stayed zero are an example."""
    from safetensors.torch import load_file, save_file

    model = save_opus_mt(tmp_path / "model")
    tensors = load_file(model / "model.safetensors")
    equal = {name: torch.full_like(value, 0.5) for name, value in tensors.items() if value.dim() == 1}
    save_file(tensors | equal, model / "model.safetensors", metadata={"format": "pt"})
    export = save_graphs(model, tmp_path / "export")
    names = [tensor.name for tensor in onnx.load(export / DECODERS[0]).graph.initializer]
    assert sum(name.endswith((".bias", ".weight")) for name in names) < 8, "else the exporter keeps all names"
    assert same(weights_of(model), weights_of(export))


def test_weights_beside_the_graph_are_read(opus: tuple[Path, Path], changed: Path) -> None:
    data = save_beside(changed / DECODERS[0])
    assert same(weights_of(opus[0]), weights_of(changed))
    origin = pipeline.read_source(changed, PAIR, silent).checkpoint.config.origin
    assert origin is not None
    assert {ENCODER, DECODERS[0], data.name} <= origin.files.keys()
    assert origin.form == "Hugging Face MarianMTModel (OPUS-MT), exported to ONNX by optimum"


def test_the_tensors_of_transformers_are_preferred(opus: tuple[Path, Path], changed: Path) -> None:
    shutil.copy(opus[0] / "model.safetensors", changed)
    origin = pipeline.read_source(changed, PAIR, silent).checkpoint.config.origin
    assert origin is not None
    assert ENCODER not in origin.files


def test_there_is_nothing_to_compare_it_with(changed: Path) -> None:
    imported = pipeline.read_source(changed, PAIR, silent)
    log: list[str] = []
    settings = ImportSettings(least_log_prob=-100)
    pipeline.check_imported(imported, changed, ["Tom sleeps."], settings, log.append)
    assert log[0] == "not compared with optimum"
    with pytest.raises(SettingsError, match="nothing to compare a model of optimum with"):
        pipeline.check_imported(imported, changed, ["Tom sleeps."], ImportSettings(compare=True), silent)


def edit(path: Path, change: Callable[[Any], object]) -> None:
    model = onnx.load(path, load_external_data=False)
    change(model.graph)
    path.write_bytes(model.SerializeToString())


def quantise(folder: Path) -> None:
    node = helper.make_node("MatMulInteger", ["a", "b"], ["c"], name="/layers.0/fc1/MatMul_quant")
    edit(folder / ENCODER, lambda graph: graph.node.append(node))


def optimise(folder: Path) -> None:
    node = helper.make_node("SkipLayerNormalization", ["a", "b"], ["c"], name="fused", domain="com.microsoft")
    edit(folder / DECODERS[0], lambda graph: graph.node.append(node))


def rename_files(folder: Path) -> None:
    for path in folder.glob("*.onnx"):
        path.rename(path.with_name(f"{path.stem}_quantized.onnx"))


def point_outside(folder: Path) -> None:
    secret = folder.parent / "secret"
    secret.write_bytes(bytes(10**6))

    def change(graph: Any) -> None:
        tensor = graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../secret")

    edit(folder / DECODERS[0], change)


def cut_data(folder: Path) -> None:
    data = save_beside(folder / DECODERS[0])
    data.write_bytes(data.read_bytes()[:1000])


def shorten(folder: Path) -> None:
    def change(graph: Any) -> None:
        table = next(each for each in graph.initializer if each.name == "model.shared.weight")
        table.raw_data = table.raw_data[:-4]

    edit(folder / DECODERS[0], change)


def remove_product(folder: Path) -> None:
    def change(graph: Any) -> None:
        graph.node.remove(next(each for each in graph.node if each.name.endswith("layers.1/fc2/MatMul")))

    edit(folder / ENCODER, change)


def add_tensor(folder: Path) -> None:
    extra = helper.make_tensor("layers.0.adapter.weight", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    edit(folder / ENCODER, lambda graph: graph.initializer.append(extra))


def empty_nodes(folder: Path) -> None:
    def change(graph: Any) -> None:
        for node in graph.node:
            if node.op_type in ("Identity", "MatMul", "LayerNormalization"):
                del node.input[:]

    edit(folder / DECODERS[0], change)


REFUSED: dict[Callable[[Path], object], str] = {
    quantise: f"is quantised or optimised, with MatMulInteger of '/layers.0/fc1/MatMul_quant': {ORIGINAL}",
    optimise: f"is quantised or optimised, with SkipLayerNormalization of 'fused': {ORIGINAL}",
    rename_files: f"has no {ENCODER} with {DECODERS[0]} or {DECODERS[1]}: {ORIGINAL}",
    point_outside: "must be in a file beside it, not in '../secret'",
    cut_data: "decoder_model.onnx_data has 1,000",
    shorten: "model.shared.weight cannot be read",
    remove_product: "has no tensor model.encoder.layers.1.fc2.weight",
    empty_nodes: "has no tensor model.decoder.layers.0.self_attn.q_proj.weight",
    add_tensor: "does not use: model.encoder.layers.0.adapter.weight",
}


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_a_graph_that_hides_its_weights_is_refused(change: Callable[[Path], object], changed: Path) -> None:
    change(changed)
    with pytest.raises(SourceModelError) as found:
        pipeline.read_source(changed, PAIR, silent)
    assert REFUSED[change] in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("seed", range(32))
def test_a_graph_with_a_flipped_bit_is_read_or_refused(seed: int, changed: Path) -> None:
    chosen = random.Random(seed)
    path = changed / chosen.choice((ENCODER, DECODERS[0]))
    content = bytearray(path.read_bytes())
    place = chosen.randrange(len(content) if seed % 2 else 20_000)
    content[place] ^= 1 << chosen.randrange(8)
    path.write_bytes(bytes(content))
    with contextlib.suppress(SourceModelError):
        weights_of(changed)


@pytest.mark.parametrize("content", [b"", b"\x00", b"ONNX", b"\xff" * 100])
def test_a_file_that_is_no_graph_is_refused(content: bytes, changed: Path) -> None:
    (changed / ENCODER).write_bytes(content)
    with pytest.raises(SourceModelError):
        weights_of(changed)
