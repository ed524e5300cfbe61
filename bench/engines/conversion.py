"""A bundle's model as float32 arrays with common names, from which the model files of other engines are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import onnx

from lingon.bundle import names
from lingon.bundle.store import Bundle, FileContent
from lingon.errors import BundleError
from lingon.serving.runtime.shortlist import Shortlist

PRECISION = "fp32"
ACTIVATIONS: dict[str, Literal["relu", "gelu", "silu"]] = {"Relu": "relu", "Gelu": "gelu", "Sigmoid": "silu"}
VARIANTS = {
    "RotaryEmbedding": "rotary positions",
    "Abs": "a window",
    "Tanh": "additive or capped scores",
    "Exp": "linear attention",
    "SimplifiedLayerNormalization": "root mean square norms",
    "QuickGelu": "the activation quick-gelu",
}
"""Variants of the Transformer by an operator of the encoder that only they have."""


class Affine(NamedTuple):
    """weight (out, in) and bias (out) of a linear layer, or gain and bias (dim) of a layer normalisation."""

    weight: np.ndarray
    bias: np.ndarray


@dataclass(frozen=True, slots=True)
class Layer:
    """The parts that encoder and decoder layers have in common. qkv: queries, keys, values in that order."""

    attention_norm: Affine
    qkv: Affine
    attention_output: Affine
    feed_forward_norm: Affine
    inner: Affine
    outer: Affine


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """The encoder-decoder attention of a decoder layer. key_value: keys and values in that order."""

    norm: Affine
    query: Affine
    key_value: Affine
    output: Affine


@dataclass(frozen=True, slots=True)
class Side:
    """Encoder or decoder. pieces: (vocab, dim), positions: (positions, dim), norm: after the last layer, if any."""

    pieces: np.ndarray
    positions: np.ndarray
    layers: tuple[Layer, ...]
    norm: Affine | None


@dataclass(frozen=True, slots=True)
class Model:
    """A Transformer as lingon.training.models computes it: embeddings times sqrt(dim) plus positions, all products
    with bias.

    cross: of each decoder layer
    output: (vocab, dim); its bias lowers the logits of pieces that are never generated
    """

    heads: int
    pre_norm: bool
    activation: Literal["relu", "gelu", "silu"]
    epsilon: float  # of layer normalisation
    encoder: Side
    decoder: Side
    cross: tuple[CrossAttention, ...]
    output: Affine

    @property
    def dim(self) -> int:
        """The width of the model."""
        return int(self.output.weight.shape[1])

    @property
    def ffn(self) -> int:
        """The width of the feed-forward layers."""
        return len(self.encoder.layers[0].inner.bias)

    @property
    def tied(self) -> bool:
        """Whether encoder, decoder and output layer share one embedding matrix."""
        source, target = self.encoder.pieces, self.decoder.pieces
        return source.shape == target.shape and (source == target).all() and (target == self.output.weight).all()


def unconvertible(bundle: Bundle) -> str | None:
    """Return why other engines cannot compute a bundle's model; None for a Transformer as in the paper."""
    if bundle.manifest.architecture != "transformer":
        return f"{bundle.label} is of kind {bundle.manifest.architecture}; only a Transformer can be converted"
    if bundle.manifest.states_of("recurrent"):
        return f"{bundle.label} has a recurrent decoder; only the Transformer of the paper is converted"
    variant = _variant(Graph.read(bundle, names.ENCODER)) or _decoder_variant(Graph.read(bundle, names.DECODER))
    return None if variant is None else f"{bundle.label} has {variant}; only the Transformer of the paper is converted"


def _decoder_variant(decoder: Graph) -> str | None:
    """Return a difference that the decoder alone shows; None if there is none."""
    return "a soft cap of logits" if "Tanh" in decoder.operators else None


def _variant(encoder: Graph) -> str | None:
    """Return the difference of an encoder to the encoder of the paper; None if there is none."""
    if variant := next((text for operator, text in VARIANTS.items() if operator in encoder.operators), None):
        return variant
    weights = encoder.weights
    if not any(name.endswith("position_table") for name in weights):
        return "no positions"
    if "source_embedding.norm.weight" in weights:
        return "a norm of the embedding"
    if "encoder.0.attention.qkv.norm.weight" in weights:
        return "a norm of the queries alone"
    if "encoder.0.around_feed_forward.norm_after.weight" in weights:
        return "norms on both sides of each layer"
    if encoder.is_pre_norm != ("encoder_norm.weight" in weights):
        return "no final norm" if encoder.is_pre_norm else "a final norm"
    dim = encoder.first("source_pieces", "pieces").shape[1]
    first = _layer(encoder, "encoder.0")
    if first.attention_output.weight.shape[1] != dim:
        return "heads of another width than dim / heads"
    if len(first.inner.weight) != first.outer.weight.shape[1]:
        return "gated feed-forward layers"
    if not any(np.isclose(value, dim**0.5) for value in encoder.scalars):
        return "embeddings that are not scaled"
    return "an approximate gelu" if encoder.approximate else None


def model_of(bundle: Bundle) -> Model:
    """Read the model of a bundle from its fp32 graphs. Raise BundleError for graphs of another model."""
    encoder, decoder = (Graph.read(bundle, name) for name in (names.ENCODER, names.DECODER))
    heads = next(int(state.shape[0]) for state in bundle.manifest.states if state.kind == "memory")
    vocab = bundle.manifest.target_vocab
    target = decoder.first("target_pieces", "pieces")[:vocab]
    return Model(
        heads=heads,
        pre_norm=encoder.is_pre_norm,
        activation=next(kind for operator, kind in ACTIVATIONS.items() if operator in encoder.operators),
        epsilon=encoder.epsilon,
        encoder=_side(encoder, "encoder", encoder.first("source_pieces", "pieces")[: bundle.manifest.source_vocab]),
        decoder=_side(decoder, "decoder", target),
        cross=_cross(encoder, decoder, heads),
        output=Affine(
            decoder.first("output.weight", "target_pieces", "pieces")[:vocab], decoder.first("output.bias")[:vocab]
        ),
    )


def shortlist_of(bundle: Bundle) -> Shortlist | None:
    """Return the shortlist of a bundle; None if it has none."""
    manifest, path = bundle.manifest, bundle.folder / names.SHORTLIST
    if manifest.shortlist is None:
        return None
    return Shortlist.from_bytes(bundle.read(names.SHORTLIST), path, manifest.source_vocab, manifest.target_vocab)


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph of a bundle.

    origin: its file, for messages
    weights: its trained tensors as float32, by name
    scalars: its constants of one number
    approximate: whether its activation is the approximation of GELU by a hyperbolic tangent
    read_in_order: the inputs of its nodes
    """

    origin: str
    weights: dict[str, np.ndarray]
    scalars: tuple[float, ...]
    operators: frozenset[str]
    approximate: bool
    epsilon: float
    read_in_order: tuple[str, ...]

    @classmethod
    def read(cls, bundle: Bundle, name: str) -> Graph:
        """Read a graph and all its weights."""
        graphs, files = bundle.graphs(PRECISION, name)
        graph = onnx.load_from_string(graphs[name]).graph
        stored = [tensor for tensor in graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
        epsilons = [
            attribute.f
            for node in graph.node
            if node.op_type == "LayerNormalization"
            for attribute in node.attribute
            if attribute.name == "epsilon"
        ]
        return cls(
            origin=f"{bundle.folder}/{PRECISION}/{name}",
            weights={tensor.name: _values(tensor, files) for tensor in stored},
            scalars=tuple(
                float(onnx.numpy_helper.to_array(tensor))
                for tensor in graph.initializer
                if tensor.data_location != onnx.TensorProto.EXTERNAL and not tensor.dims
            ),
            operators=frozenset(node.op_type for node in graph.node),
            approximate=any(attribute.name == "approximate" for node in graph.node for attribute in node.attribute),
            epsilon=next(iter(epsilons), 0.0),
            read_in_order=tuple(name for node in graph.node for name in node.input),
        )

    @property
    def is_pre_norm(self) -> bool:
        """Whether the norm of the first layer of an encoder comes before its attention."""
        norm, product = "encoder.0.around_attention.norm.weight", "encoder.0.attention.qkv.weight"
        return self.read_in_order.index(norm) < self.read_in_order.index(product)

    def first(self, *candidates: str) -> np.ndarray:
        """Return the weight with the first of these names that the graph has."""
        for name in candidates:
            if name in self.weights:
                return self.weights[name]
        raise BundleError(f"{self.origin}: has no weight {candidates[0]}; only a Transformer can be converted")

    def affine(self, module: str) -> Affine:
        """Return the weight and bias of a module."""
        return Affine(self.first(f"{module}.weight"), self.first(f"{module}.bias"))

    def layers(self, side: str) -> int:
        """Return the number of layers of a side."""
        return len({name.split(".")[1] for name in self.weights if name.startswith(f"{side}.")})


def _values(tensor: onnx.TensorProto, files: dict[str, FileContent]) -> np.ndarray:
    location: dict[str, Any] = {entry.key: entry.value for entry in tensor.external_data}
    dtype, count = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), int(np.prod(tensor.dims))
    flat = np.frombuffer(files[location["location"]], dtype, count, int(location["offset"]))
    return flat.reshape(tuple(tensor.dims)).astype(np.float32)


def _side(graph: Graph, side: str, pieces: np.ndarray) -> Side:
    owner = "source" if side == "encoder" else "target"
    layers = tuple(_layer(graph, f"{side}.{number}") for number in range(graph.layers(side)))
    norm = graph.affine(f"{side}_norm") if f"{side}_norm.weight" in graph.weights else None
    return Side(pieces, graph.first(f"{owner}.position_table", "position_table"), layers, norm)


def _layer(graph: Graph, name: str) -> Layer:
    return Layer(
        attention_norm=graph.affine(f"{name}.around_attention.norm"),
        qkv=graph.affine(f"{name}.attention.qkv"),
        attention_output=graph.affine(f"{name}.attention.output"),
        feed_forward_norm=graph.affine(f"{name}.around_feed_forward.norm"),
        inner=graph.affine(f"{name}.feed_forward.inner"),
        outer=graph.affine(f"{name}.feed_forward.outer"),
    )


def _cross(encoder: Graph, decoder: Graph, heads: int) -> tuple[CrossAttention, ...]:
    """Return the cross-attention of all layers.

    The encoder's graph computes the keys and values of all layers in one product. The queries of our graphs are
    already scaled by 1 / sqrt(head_dim), which is undone here.
    """
    layers, packed = decoder.layers("decoder"), encoder.affine("memory")
    weights, biases = np.split(packed.weight, layers), np.split(packed.bias, layers)
    found = []
    for number, key_value in enumerate(zip(weights, biases, strict=True)):
        name = f"decoder.{number}"
        query = decoder.affine(f"{name}.cross.query")
        scale = np.float32((query.weight.shape[0] // heads) ** 0.5)
        found.append(
            CrossAttention(
                norm=decoder.affine(f"{name}.around_cross.norm"),
                query=Affine(query.weight * scale, query.bias * scale),
                key_value=Affine(*key_value),
                output=decoder.affine(f"{name}.cross.output"),
            )
        )
    return tuple(found)
