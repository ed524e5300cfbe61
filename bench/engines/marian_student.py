"""The files of a student of Marian, written from a bundle: the fp32 weights, with the ranges of the int8 graphs.

The rows of its tables are the ids of Lingon, and its pieces are their numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import onnx

from lingon.bench.engines.conversion import Affine, Graph
from lingon.bundle import names
from lingon.bundle.store import Bundle
from lingon.errors import BundleError
from lingon.importers.files.pieces import Numbering
from lingon.importers.readers.marian_files import FLOAT32, INT8, INTGEMM8, MAGIC, OPTIONS, binary_file, lexicon_checksum
from lingon.importers.toolkits.comparison import NEVER, spelled_by_ids
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import BOS, PAD, UNK

INTEGER_GRAPHS = "int8"  # the precision whose ranges are taken
LARGEST, SHIFTED = 127, 255  # of an 8-bit value with and without a sign
ROW_STEP = 8  # the rows of a table must be a multiple of this
OPTIONS_OF_A_STUDENT = {
    "type": "transformer",
    "transformer-decoder-autoreg": "rnn",
    "dec-cell": "ssru",
    "transformer-ffn-activation": "relu",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
}


def model_file(bundle: Bundle) -> bytes:
    """Return the model of a bundle for which lingon.bench.engines.fxtranslate.unconvertible finds no reason."""
    encoder, decoder = (Graph.read(bundle, name) for name in (names.ENCODER, names.DECODER))
    heads = next(int(state.shape[0]) for state in bundle.manifest.states if state.kind == "memory")
    return _file(_tensors(bundle, encoder, decoder, heads), _alphas(bundle), heads)


def pieces_file(size: int) -> bytes:
    """Return a sentencepiece model of so many pieces, each the number of its id."""
    return spelled_by_ids(Numbering(tuple(map(str, range(size + 1))), tuple(range(size + 1)), (), 0))


def shortlist_file(shortlist: Shortlist) -> bytes:
    """Return a shortlist of Marian in which every source piece has what all have, and its own."""
    own = [shortlist.pieces[begin:end] for begin, end in pairwise(shortlist.offsets.tolist())]
    lists = [np.union1d(shortlist.always, each).astype(np.uint32) for each in own]
    offsets, ids = np.cumsum([0, *map(len, lists)]).astype(np.uint64), np.concatenate(lists)
    body = struct.pack("<4Q", 0, 0, len(offsets), len(ids)) + offsets.tobytes() + ids.tobytes()
    return struct.pack("<2Q", MAGIC, lexicon_checksum(body[: len(body) // 8 * 8])) + body


def _alphas(bundle: Bundle) -> dict[str, float]:
    """Return the scale of the input of each product, by its name, from the int8 graphs."""
    found: dict[str, float] = {}
    for name in (names.ENCODER, names.DECODER):
        graph = onnx.load_from_string(bundle.graphs(INTEGER_GRAPHS, name)[0][name]).graph
        constants = {each.name: float(onnx.numpy_helper.to_array(each)) for each in graph.initializer if not each.dims}
        for node in graph.node:
            if node.op_type == "MatMulIntegerToFloat":
                step, zero = constants[node.input[2]], constants[node.input[4]]
                # A range that is as wide on both sides has its 0 between two integers, of which the graph has one.
                reach = SHIFTED / 2 if abs(zero - SHIFTED / 2) < 1 else max(zero, SHIFTED - zero)
                found[node.input[1].rpartition(".")[0]] = LARGEST / (step * reach)
    return found


def _tensors(bundle: Bundle, encoder: Graph, decoder: Graph, heads: int) -> dict[str, tuple[np.ndarray, str]]:
    """Return the tensors by the names of Marian, each with the name of our product, "" for what is no matrix of one."""
    found: dict[str, tuple[np.ndarray, str]] = {}

    def product(theirs: Sequence[str], values: Affine, ours: str) -> None:
        weights, biases = (np.split(each, len(theirs)) for each in values)
        for (weight, bias), matrix in zip(zip(weights, biases, strict=True), theirs, strict=True):
            found[matrix] = weight.T, ours
            if not matrix.endswith("rnn_W"):
                before, _, part = matrix.rpartition("_W")
                found[f"{before}_b{part}"] = bias[None], ""

    def norm(theirs: str, values: Affine) -> None:
        for name, value in zip(("scale", "bias"), values, strict=True):
            found[f"{theirs}_ln_{name}"] = value[None], ""

    layers = decoder.layers("decoder")
    packed = encoder.affine("memory")
    memory = [Affine(*each) for each in zip(*(np.split(part, layers) for part in packed), strict=True)]
    root = np.float32(np.sqrt(decoder.first("decoder.0.cross.query.weight").shape[0] // heads))
    for side, graph in (("encoder", encoder), ("decoder", decoder)):
        for number in range(graph.layers(side)):
            ours, theirs = f"{side}.{number}", f"{side}_l{number + 1}"
            if side == "encoder":
                product(
                    [f"{theirs}_self_W{part}" for part in "qkv"],
                    graph.affine(f"{ours}.attention.qkv"),
                    f"{ours}.attention.qkv",
                )
                product([f"{theirs}_self_Wo"], graph.affine(f"{ours}.attention.output"), f"{ours}.attention.output")
                norm(f"{theirs}_self_Wo", graph.affine(f"{ours}.around_attention.norm"))
            else:
                product(
                    [f"{theirs}_rnn_Wf", f"{theirs}_rnn_W"],
                    graph.affine(f"{ours}.attention.gates"),
                    f"{ours}.attention.gates",
                )
                norm(f"{theirs}_rnn_ffn", graph.affine(f"{ours}.around_attention.norm"))
                query = graph.affine(f"{ours}.cross.query")  # our graphs have it divided by this root
                product([f"{theirs}_context_Wq"], Affine(query.weight * root, query.bias * root), f"{ours}.cross.query")
                product([f"{theirs}_context_W{part}" for part in "kv"], memory[number], "memory")
                product([f"{theirs}_context_Wo"], graph.affine(f"{ours}.cross.output"), f"{ours}.cross.output")
                norm(f"{theirs}_context_Wo", graph.affine(f"{ours}.around_cross.norm"))
            product([f"{theirs}_ffn_W1"], graph.affine(f"{ours}.feed_forward.inner"), f"{ours}.feed_forward.inner")
            product([f"{theirs}_ffn_W2"], graph.affine(f"{ours}.feed_forward.outer"), f"{ours}.feed_forward.outer")
            norm(f"{theirs}_ffn_ffn", graph.affine(f"{ours}.around_feed_forward.norm"))
    return found | _output(bundle, encoder, decoder)


def _output(bundle: Bundle, encoder: Graph, decoder: Graph) -> dict[str, tuple[np.ndarray, str]]:
    """Return the tables of pieces and the bias of the output, with rows up to a multiple of ROW_STEP."""
    target = _padded(decoder.first("target_pieces", "pieces")[: bundle.manifest.target_vocab])
    bias = np.full((1, len(target)), NEVER, np.float32)
    bias[0, : bundle.manifest.target_vocab] = decoder.first("output.bias")[: bundle.manifest.target_vocab]
    bias[0, [PAD, BOS, UNK]] = NEVER
    found = {"decoder_ff_logit_out_b": (bias, "")}
    if "pieces" in encoder.weights:
        return found | {"Wemb": (target, "output")}
    source = _padded(encoder.first("source_pieces")[: bundle.manifest.source_vocab])
    return found | {"encoder_Wemb": (source, ""), "decoder_Wemb": (target, "output")}


def _padded(table: np.ndarray) -> np.ndarray:
    return np.pad(table, ((0, -len(table) % ROW_STEP), (0, 0)))


def _file(tensors: Mapping[str, tuple[np.ndarray, str]], alphas: Mapping[str, float], heads: int) -> bytes:
    """Return a binary file: matrices in 8-bit integers with the scales of their inputs, all else in float32."""
    items: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, (values, product) in tensors.items():
        if not product and "Wemb" not in name:
            items.append((name, FLOAT32, values.shape, np.ascontiguousarray(values, np.float32).tobytes()))
            continue
        scale = np.float32(LARGEST / max(float(np.abs(values).max()), 1e-9))
        integers = np.rint(values * scale).clip(-LARGEST, LARGEST).astype(np.int8)
        stored = integers if "Wemb" in name else integers.T
        items.append((name, INTGEMM8[0], values.shape, np.ascontiguousarray(stored).tobytes() + scale.tobytes()))
        if product:
            if product not in alphas:
                raise BundleError(f"the int8 graphs have no range of {product}")
            alpha = np.array([[alphas[product]]], np.float32)
            items.append((f"{'none' if 'Wemb' in name else name}_QuantMultA", FLOAT32, (1, 1), alpha.tobytes()))
    dim = tensors["decoder_l1_rnn_W"][0].shape[0]
    depths = [
        len([name for name in tensors if name.startswith(f"{side}_l") and name.endswith("ffn_W1")])
        for side in ("encoder", "decoder")
    ]
    numbers = {
        "dim-emb": dim,
        "transformer-heads": heads,
        "transformer-dim-ffn": tensors["encoder_l1_ffn_W1"][0].shape[1],
        "enc-depth": depths[0],
        "dec-depth": depths[1],
    }
    options = (
        "".join(f"{name}: {value!r}\n" for name, value in {**OPTIONS_OF_A_STUDENT, **numbers}.items()).encode() + b"\0"
    )
    return binary_file([*items, (OPTIONS, INT8, (len(options),), options)])
