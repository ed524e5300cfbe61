"""ONNX exports of tiny models of other toolkits, with the files and the names that optimum gives them."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import GraphProto, ModelProto, helper

from lingon.importers.files.graphs import DECODERS, ENCODER
from lingon.importers.files.tensors import SAFETENSORS

LENGTH, OPSET = 5, 17


def save_graphs(model: Path, folder: Path, *, opset: int = OPSET) -> Path:
    """Export the model in a folder as optimum does: its encoder, and itself with the states of an encoder."""
    from transformers import AutoModelForSeq2SeqLM

    shutil.copytree(model, folder, ignore=shutil.ignore_patterns(SAFETENSORS))
    loaded = AutoModelForSeq2SeqLM.from_pretrained(model, attn_implementation="eager").eval()
    loaded.config.use_cache = False
    ids, mask = torch.full((1, LENGTH), 3), torch.ones(1, LENGTH, dtype=torch.long)
    states = torch.zeros(1, LENGTH, loaded.config.d_model)
    _export(loaded.get_encoder(), {"input_ids": ids, "attention_mask": mask}, folder / ENCODER, opset)
    given = {"attention_mask": mask, "decoder_input_ids": ids, "encoder_outputs": (states,)}
    _export(loaded, given, folder / DECODERS[0], opset)
    return folder


def merge(folder: Path) -> None:
    """Turn the decoder into one of two graphs that share their weights, one in each branch of an `If`."""
    model = onnx.load(folder / DECODERS[0])
    names = {tensor.name: f"{tensor.name}_merged_0" for tensor in model.graph.initializer}
    for node in model.graph.node:
        for number, given in enumerate(node.input):
            node.input[number] = names.get(given, given)
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
    onnx.save(_in_branches(model), folder / DECODERS[1])
    (folder / DECODERS[0]).unlink()


def save_beside(path: Path) -> Path:
    """Save a graph with its weights in a file beside it; return that file."""
    model = onnx.load(path)
    data = path.with_name(f"{path.name}_data")
    onnx.save(model, path, save_as_external_data=True, location=data.name, size_threshold=0)
    return data


def _export(model: Any, given: dict[str, Any], path: Path, opset: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing, and of this form of export, which optimum still uses
        torch.onnx.export(model, (), str(path), kwargs=given, opset_version=opset, dynamo=False)


def _in_branches(model: ModelProto) -> ModelProto:
    graph = model.graph
    branches = []
    for name in ("then_branch", "else_branch"):
        branch = GraphProto(name=name)
        branch.node.extend(graph.node)
        branch.output.extend(graph.output)
        branches.append((name, branch))
    condition = helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    outputs = [output.name for output in graph.output]
    choice = helper.make_node("If", [condition.name], outputs, name="optimum::if", **dict(branches))
    whole = helper.make_graph([choice], "merged", [*graph.input, condition], graph.output, graph.initializer)
    return helper.make_model(whole, opset_imports=model.opset_import, ir_version=model.ir_version)
