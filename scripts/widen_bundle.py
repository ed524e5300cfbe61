"""A checkpoint from the fp32 graphs of a bundle, with more or fewer layers, or with wider feed-forward layers.

    python scripts/widen_bundle.py BUNDLE CONFIG FOLDER

FOLDER gets a checkpoint for `lingon train CONFIG --init-from FOLDER`. At first the model of CONFIG computes the same as
the bundle: the outputs of new layers, and the weights that read new hidden units, are 0 (Chen, Goodfellow and Shlens,
2016, for the units). A model with fewer layers has the first, the last and evenly spread ones between them (Shleifer
and Rush, 2020), or the first one alone, and a decoder of SSRUs has new weights instead of self-attention: it has to be
trained before use. It must be a pre-norm Transformer of the same width as the bundle.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor

from lingon.bundle.names import DECODER, ENCODER, WEIGHTS
from lingon.bundle.store import Bundle, open_bundle
from lingon.text import Tokenizer
from lingon.training.checkpoint import TrainingProgress, save_checkpoint
from lingon.training.config import Config, load_config
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.transformer import Transformer

TYPES = {onnx.TensorProto.FLOAT16: np.float16, onnx.TensorProto.FLOAT: np.float32}
ZERO_AT_FIRST = "output.weight", "output.bias", "outer.weight", "outer.bias"  # of a new layer


def weights_of(bundle: Bundle) -> dict[str, Tensor]:
    """Return the weights of the fp32 graphs of a bundle, by the names of the exporter."""
    found: dict[str, Tensor] = {}
    for graph in (ENCODER, DECODER):
        model = onnx.load_model_from_string(bundle.read(f"fp32/{graph}"))
        for tensor in model.graph.initializer:
            if place := {each.key: each.value for each in tensor.external_data}:
                content = bundle.read(f"{WEIGHTS}/{place['location']}")
                begin, length = int(place["offset"]), int(place["length"])
                values = np.frombuffer(content[begin : begin + length], TYPES[tensor.data_type])
                found[tensor.name] = torch.from_numpy(values.astype(np.float32).reshape(tuple(tensor.dims)))
    return found


def known_weight(name: str, weights: dict[str, Tensor], settings: TransformerSettings, layers: int) -> Tensor | None:
    """Return a weight of the model of the bundle by its name in PyTorch; None if the bundle has no such layer.

    layers: of the decoder of the bundle, whose keys and values are one product in the graph
    """
    parts = name.split(".")
    if name.endswith("pieces.weight") or name == "output.weight":
        return weights["pieces"]
    if parts[2:4] == ["cross", "key_value"]:
        product = weights[f"memory.{parts[4]}"]
        return product.view(layers, -1, *product.shape[1:])[int(parts[1])] if int(parts[1]) < layers else None
    found = weights.get(name)
    if found is not None and parts[2:4] == ["cross", "query"]:
        return found * settings.head_dim**0.5  # the graph has the scale of the scores in this product
    return found


def spread_layers(count: int, there: int) -> list[int]:
    """Return the layer of a stack of `there` with which each of `count` layers begins; a new one is its own number."""
    if count >= there or count == 1:
        return list(range(count))
    return [round(place * (there - 1) / (count - 1)) for place in range(count)]


def name_in_bundle(name: str, layers: Mapping[str, Sequence[int]]) -> str:
    """Return the name in the bundle of a weight. layers: of each stack, see spread_layers."""
    stack, _, rest = name.partition(".")
    if stack not in layers or not rest[0].isdigit():
        return name
    number, _, part = rest.partition(".")
    return f"{stack}.{layers[stack][int(number)]}.{part}"


def widened(bundle: Bundle, config: Config) -> Transformer:
    """Return the model of a config with the weights of a bundle."""
    settings, weights = config.model, weights_of(bundle)
    assert isinstance(settings, TransformerSettings), "the config is not that of a Transformer"
    assert settings.norm == "pre", "new layers of a post-norm model change what it computes"
    assert not settings.query_norm, "a bundle has queries, keys and values in one product"
    model = Transformer(settings, bundle.manifest.source_vocab, bundle.manifest.target_vocab)
    layers = len([each for each in bundle.manifest.states_of("memory") if each.name.endswith(".key")])
    there = len(
        {name.split(".")[1] for name in weights if name.startswith("encoder.") and name.split(".")[1].isdigit()}
    )
    taken = {
        "encoder": spread_layers(settings.encoder_layers, there),
        "decoder": spread_layers(settings.decoder_layers, layers),
    }
    with torch.no_grad():
        for name, values in model.state_dict().items():
            known = known_weight(name_in_bundle(name, taken), weights, settings, layers)
            if known is None:
                if name.endswith(ZERO_AT_FIRST):
                    values.zero_()
                continue
            if name.endswith("outer.weight"):
                values.zero_()
            part = tuple(slice(min(sizes)) for sizes in zip(values.shape, known.shape, strict=True))
            values[part] = known[part]
    return model


def main() -> None:
    """Write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="models/NAME or models/NAME/VERSION")
    parser.add_argument("config", type=Path, help="settings of the model and of its training")
    parser.add_argument("folder", type=Path, help="new folder of the checkpoint")
    arguments = parser.parse_args()
    bundle, config = open_bundle(arguments.bundle), load_config(arguments.config)
    torch.manual_seed(config.training.seed)
    tokenizer = Tokenizer.read(bundle.folder)
    save_checkpoint(arguments.folder, config, tokenizer, widened(bundle, config), TrainingProgress())
    print(f"{arguments.folder}: the weights of {bundle.label}")


if __name__ == "__main__":
    main()
