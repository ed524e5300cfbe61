"""CTranslate2 in the benchmarks, with model files that its `specs` API writes, as one of its converters would.

Its search compared to ours, without a length penalty (training/search.py): both rank 2 * beam_size continuations, keep
those that end within the first beam_size, and continue with the best beam_size others. CTranslate2 stops when the first
in rank ends. Our search stops when the best finished hypothesis is at least as good as the first in rank. Since scores
only fall, the best hypothesis is the same. At the length limit, which is the same for a whole batch
(lingon.bench.engines.base), both take the hypotheses in the beam, finished or not. With a shortlist, CTranslate2
gives every sentence the union of the shortlists of its batch. Our engine gives every sentence its own shortlist.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lingon.bench.engines.base import Cell, Setting, Tokens, batches, limit, missing_package, read_limits, write_limits
from lingon.bench.engines.conversion import (
    Affine,
    CrossAttention,
    Layer,
    Model,
    Side,
    model_of,
    shortlist_of,
)
from lingon.bundle.store import Bundle
from lingon.errors import SettingsError
from lingon.serving.runtime.shortlist import Shortlist

SPECIAL = ("<blank>", "<s>", "</s>", "<unk>")  # CTranslate2's names of the ids 0 to 3
SHORTLIST = "vmap.txt"  # the file name that CTranslate2 looks for
SOURCES = ("shared_vocabulary.json", "source_vocabulary.json")
INT8 = "int8"  # the folder of the files in 8 bits, and their quantisation
COMPUTE_TYPES = {"fp32": "float32", "int8": "int8", "fp16": "float16"}


def unavailable_reason() -> str | None:
    """Return a reason if CTranslate2 is not installed."""
    return missing_package("ctranslate2")


def prepare(bundle: Bundle, folder: Path) -> None:
    """Write the model files in float32 and, in the folder INT8, in 8 bits, as its converters do."""
    model, shortlist = model_of(bundle), shortlist_of(bundle)
    sources, targets = (pieces(len(side.pieces)) for side in (model.encoder, model.decoder))
    for part, quantisation in ((folder, None), (folder / INT8, INT8)):
        part.mkdir(parents=True, exist_ok=True)
        spec = _spec(model)
        spec.register_source_vocabulary(sources)
        spec.register_target_vocabulary(targets)
        spec.validate()
        spec.optimize(quantization=quantisation)  # it writes tied tables once, too
        spec.save(str(part))
        write_limits(bundle, part)
        if shortlist is not None:
            (part / SHORTLIST).write_text(_lines(shortlist, sources, targets), encoding="utf-8")


def load(folder: Path, setting: Setting) -> CTranslate2:
    """Return the translator of a folder that `prepare` wrote."""
    return CTranslate2(folder / INT8 if setting.precision == INT8 else folder, setting)


class CTranslate2:
    """CTranslate2 as a lingon.bench.engines.base.BenchEngine. The batch of a cell is split between the workers."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        self._workers = setting.workers
        self._limits, self._sources = read_limits(folder), source_pieces(folder)
        self._translator = translator(folder, setting)

    def translate(self, sources: Sequence[Sequence[int]], cell: Cell) -> Tokens:
        """Enqueue all batches at once, so that each worker takes the next from the queue."""
        named = [[self._sources[token] for token in source] for source in sources]
        planned = batches(sources, cell, self._limits, -(-cell.batch // self._workers))
        waiting = [self._submit([named[index] for index in batch.indices], batch.longest, cell) for batch in planned]
        found: Tokens = [[] for _ in sources]
        for batch, answers in zip(planned, waiting, strict=True):
            for index, answer in zip(batch.indices, answers, strict=True):
                tokens = [int(piece) for piece in answer.result().hypotheses[0]]
                found[index] = tokens[: limit(len(sources[index]), cell, self._limits)]
        return found

    def _submit(self, sources: list[list[str]], longest: int, cell: Cell) -> Any:
        """Enqueue a batch, and return CTranslate2's pending results."""
        return self._translator.translate_batch(
            sources,
            asynchronous=True,
            beam_size=cell.beam_size,
            length_penalty=0.0,
            max_decoding_length=longest,
            min_decoding_length=longest if cell.is_forced else 0,
            use_vmap=cell.shortlist,
        )


def translator(folder: Path, setting: Setting) -> Any:
    """Return CTranslate2's Translator for a folder of `prepare`, with the workers and threads of a setting."""
    import ctranslate2

    if setting.device == "cuda" and not ctranslate2.get_cuda_device_count():
        raise SettingsError("ctranslate2 sees no CUDA device")
    return ctranslate2.Translator(
        str(folder),
        device=setting.device,
        compute_type=COMPUTE_TYPES[setting.precision],
        inter_threads=setting.workers,
        intra_threads=setting.threads,
    )


def pieces(count: int) -> list[str]:
    """Return a vocabulary of this size, in which the name of a piece that is not special is its id."""
    return [*SPECIAL, *map(str, range(len(SPECIAL), count))]


def source_pieces(folder: Path) -> list[str]:
    """Return the source pieces of a folder that `prepare` wrote."""
    (path,) = (folder / name for name in SOURCES if (folder / name).is_file())
    found: list[str] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _lines(shortlist: Shortlist, sources: Sequence[str], targets: Sequence[str]) -> str:
    """Return a vocabulary map: source piece, tab, target pieces. The first line, without a source piece, is for all."""
    by_piece = (shortlist.pieces[begin:end] for begin, end in pairwise(shortlist.offsets.tolist()))
    rows = [("", shortlist.always), *zip(sources, by_piece, strict=True)]
    return "".join(f"{piece}\t{' '.join(targets[target] for target in found)}\n" for piece, found in rows)


def _spec(model: Model) -> Any:
    from ctranslate2.specs import TransformerSpec, common_spec

    kinds = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}
    spec = TransformerSpec.from_config(
        (len(model.encoder.layers), len(model.decoder.layers)),
        model.heads,
        pre_norm=model.pre_norm,
        activation=common_spec.Activation[kinds[model.activation]],
    )
    spec.config.layer_norm_epsilon = model.epsilon
    _fill_side(spec.encoder, spec.encoder.embeddings[0], model.encoder)
    _fill_side(spec.decoder, spec.decoder.embeddings, model.decoder)
    for layer, cross in zip(spec.decoder.layer, model.cross, strict=True):
        _fill_cross(layer.attention, cross)
    _fill_linear(spec.decoder.projection, model.output)
    return spec


def _fill_side(spec: Any, embeddings: Any, side: Side) -> None:
    embeddings.weight = side.pieces
    embeddings.multiply_by_sqrt_depth = True
    spec.position_encodings.encodings = side.positions
    if side.norm is not None:
        _fill_norm(spec.layer_norm, side.norm)
    for part, layer in zip(spec.layer, side.layers, strict=True):
        _fill_layer(part, layer)


def _fill_layer(spec: Any, layer: Layer) -> None:
    _fill_norm(spec.self_attention.layer_norm, layer.attention_norm)
    _fill_linear(spec.self_attention.linear[0], layer.qkv)
    _fill_linear(spec.self_attention.linear[1], layer.attention_output)
    _fill_norm(spec.ffn.layer_norm, layer.feed_forward_norm)
    _fill_linear(spec.ffn.linear_0, layer.inner)
    _fill_linear(spec.ffn.linear_1, layer.outer)


def _fill_cross(spec: Any, cross: CrossAttention) -> None:
    _fill_norm(spec.layer_norm, cross.norm)
    for linear, values in zip(spec.linear, (cross.query, cross.key_value, cross.output), strict=True):
        _fill_linear(linear, values)


def _fill_linear(spec: Any, values: Affine) -> None:
    spec.weight, spec.bias = values


def _fill_norm(spec: Any, values: Affine) -> None:
    spec.gamma, spec.beta = values
