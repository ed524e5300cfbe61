"""`transformers` in the benchmarks: Marian for models with norms after the sublayers, Pegasus for norms before them.

Both compute the same as lingon.training.models: embeddings times sqrt(dim), a table of positions (overwritten by the
bundle's, since their sines and cosines are in another order), linear layers with bias, and a bias of the logits that
keeps special pieces away. `generate` ranks 2 * beam_size continuations, keeps those that end within the first
beam_size, and with early_stopping=False continues until the worst of beam_size finished hypotheses is at least as good
as the best unfinished one. Without a length penalty scores only fall, so that our search, which stops earlier, finds
the same best hypothesis (training/search.py). The length limit is the limit of a batch (lingon.bench.engines.base).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lingon.bench.engines.base import Cell, Setting, Tokens, batches, limit, missing_package, read_limits, write_limits
from lingon.bench.engines.conversion import Affine, CrossAttention, Layer, Model, Side, model_of
from lingon.bundle.manifest import Limits
from lingon.bundle.store import Bundle
from lingon.errors import BundleError, SettingsError
from lingon.text import BOS, EOS, PAD

WEIGHTS = "weights.npz"
SHARED = "model.shared.weight"
TIED_TO_SHARED = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")


def unavailable_reason() -> str | None:
    """Return a reason if transformers or torch is not installed."""
    return missing_package("transformers", "torch")


def prepare(bundle: Bundle, folder: Path) -> None:
    """Write the configuration, and the weights by the names of transformers."""
    folder.mkdir(parents=True, exist_ok=True)
    model = model_of(bundle)
    if not model.tied:
        raise BundleError(
            f"{bundle.folder}: has several embedding matrices; transformers can load only models with one"
        )
    _config(model).save_pretrained(folder)
    arrays: dict[str, Any] = dict(_state(model))
    np.savez(folder / WEIGHTS, **arrays)
    write_limits(bundle, folder)


def load(folder: Path, setting: Setting) -> GenerateEngine:
    """Load the model of a folder that `prepare` wrote, on the device and in the precision of the setting."""
    if setting.device == "cpu":
        check_setting(setting)
    import torch

    if setting.device == "cuda" and not torch.cuda.is_available():
        raise SettingsError("transformers: torch sees no CUDA device")
    torch.set_num_threads(setting.threads)
    network = load_network(folder)
    if setting.static_cache and not network._can_compile_fullgraph:
        raise SettingsError(f"this transformers has no static cache for {type(network).__name__}")
    placed = network.to(setting.device, torch.float16 if setting.precision == "fp16" else torch.float32)
    return GenerateEngine(placed, read_limits(folder), static_cache=setting.static_cache)


def check_setting(setting: Setting) -> None:
    """Raise SettingsError for a setting other than fp32 with 1 worker, which `generate` does not support."""
    if setting.precision != "fp32" or setting.workers != 1:
        values = f"{setting.precision} and {setting.workers}"
        raise SettingsError(f"transformers is measured in fp32 with 1 worker, got {values}")


def load_network(folder: Path) -> Any:
    """Load the torch module of a folder that `prepare` wrote."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    with np.load(folder / WEIGHTS) as arrays:
        state = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    model = AutoModelForSeq2SeqLM.from_config(AutoConfig.from_pretrained(folder))
    model.load_state_dict(state | dict.fromkeys(TIED_TO_SHARED, state[SHARED]))
    return model.eval()


class GenerateEngine:
    """A model with `generate` as a lingon.bench.engines.base.BenchEngine, with similar lengths in a batch.

    static_cache: keys and values of a fixed size, with which `generate` compiles the model on CUDA
    """

    def __init__(self, model: Any, limits: Limits, *, static_cache: bool = False) -> None:
        self._model, self._limits, self._static_cache = model, limits, static_cache
        self._cell: Cell | None = None

    def translate(self, sources: Sequence[Sequence[int]], cell: Cell) -> Tokens:
        """Translate one batch after the other."""
        if self._static_cache and cell != self._cell:
            _forget_compiled()
            self._cell = cell
        found: Tokens = [[] for _ in sources]
        for batch in batches(sources, cell, self._limits, cell.batch):
            settings = _generation(cell, batch.longest)
            if self._static_cache:
                settings.cache_implementation = "static"
            rows = self._generate([sources[index] for index in batch.indices], settings)
            for index, tokens in zip(batch.indices, rows, strict=True):
                found[index] = tokens[: limit(len(sources[index]), cell, self._limits)]
        return found

    def _generate(self, sources: Sequence[Sequence[int]], settings: Any) -> list[list[int]]:
        import torch

        longest = max(map(len, sources))
        rows = [[*source, *[PAD] * (longest - len(source))] for source in sources]
        ids = torch.tensor(rows, device=self._model.device)
        with torch.inference_mode():
            found = self._model.generate(
                input_ids=ids, attention_mask=(ids != PAD).long(), generation_config=settings
            ).tolist()
        return [row[1 : row.index(EOS) if EOS in row else None] for row in found]


def _forget_compiled() -> None:
    """Drop the compiled shapes, because torch.compile keeps few and runs further ones eagerly without a message."""
    import torch

    torch._dynamo.reset()


def _generation(cell: Cell, longest: int) -> Any:
    from transformers import GenerationConfig

    beams = {"length_penalty": 0.0, "early_stopping": False} if cell.beam_size > 1 else {}
    return GenerationConfig(
        num_beams=cell.beam_size,
        **beams,
        do_sample=False,
        max_new_tokens=longest,
        min_new_tokens=longest if cell.is_forced else None,
        decoder_start_token_id=BOS,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )


def _config(model: Model) -> Any:
    from transformers import MarianConfig, PegasusConfig

    kind = PegasusConfig if model.pre_norm else MarianConfig
    sides: Mapping[str, Side] = {"encoder": model.encoder, "decoder": model.decoder}
    return kind(
        vocab_size=len(model.output.weight),
        d_model=model.dim,
        **{f"{name}_layers": len(side.layers) for name, side in sides.items()},
        **{f"{name}_attention_heads": model.heads for name in sides},
        **{f"{name}_ffn_dim": model.ffn for name in sides},
        max_position_embeddings=len(model.encoder.positions),
        activation_function=model.activation,
        scale_embedding=True,
        decoder_start_token_id=BOS,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        forced_eos_token_id=None,
    )


def _state(model: Model) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the weights by their names in transformers, and the shared embedding matrix once."""
    yield SHARED, model.output.weight
    yield "final_logits_bias", model.output.bias[None]
    for name, side in (("model.encoder", model.encoder), ("model.decoder", model.decoder)):
        yield f"{name}.embed_positions.weight", side.positions
        if side.norm is not None:
            yield from _affine(f"{name}.layer_norm", side.norm)
        for number, layer in enumerate(side.layers):
            yield from _layer(f"{name}.layers.{number}", layer)
    for number, cross in enumerate(model.cross):
        yield from _cross(f"model.decoder.layers.{number}", cross)


def _layer(name: str, layer: Layer) -> Iterator[tuple[str, np.ndarray]]:
    yield from _affine(f"{name}.self_attn_layer_norm", layer.attention_norm)
    yield from _parts(f"{name}.self_attn", "qkv", layer.qkv)
    yield from _affine(f"{name}.self_attn.out_proj", layer.attention_output)
    yield from _affine(f"{name}.final_layer_norm", layer.feed_forward_norm)
    yield from _affine(f"{name}.fc1", layer.inner)
    yield from _affine(f"{name}.fc2", layer.outer)


def _cross(name: str, cross: CrossAttention) -> Iterator[tuple[str, np.ndarray]]:
    yield from _affine(f"{name}.encoder_attn_layer_norm", cross.norm)
    yield from _parts(f"{name}.encoder_attn", "q", cross.query)
    yield from _parts(f"{name}.encoder_attn", "kv", cross.key_value)
    yield from _affine(f"{name}.encoder_attn.out_proj", cross.output)


def _parts(name: str, letters: str, packed: Affine) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the linear layers that are packed into one."""
    weights, biases = np.split(packed.weight, len(letters)), np.split(packed.bias, len(letters))
    for letter, weight, bias in zip(letters, weights, biases, strict=True):
        yield from _affine(f"{name}.{letter}_proj", Affine(weight, bias))


def _affine(name: str, values: Affine) -> Iterator[tuple[str, np.ndarray]]:
    yield f"{name}.weight", values.weight
    yield f"{name}.bias", values.bias
