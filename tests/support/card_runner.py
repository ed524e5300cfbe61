"""The graphs of tiny models in our own operators for CUDA, on the CPU: Triton's interpreter runs their kernels."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from lingon.bundle.store import Bundle
from lingon.serving.runtime.device import FP16_NATIVE
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from tests.support.card_emulation import register_emulated_operators
from tests.support.random_models import letters_tokenizer, random_model, written_bundle

TINY: dict[str, Any] = {
    **{"dim": 32, "heads": 1, "ffn": 32, "norm": "pre", "max_positions": 64},
    **{"encoder_layers": 1, "decoder_layers": 1, "tie": "none", "seed": 2},
}
"""The settings of a model with a head that the operators take, and its seed: the translations vary and some end. The
interpreter takes 0.1 s for a step.
"""


def card_bundle(folder: Path, **settings: Any) -> Bundle:
    """Write a bundle of a random model below a folder; settings: besides TINY."""
    files = {"tokenizer.model": letters_tokenizer()}
    return written_bundle(random_model(**{**TINY, **settings}), folder, [FP16_NATIVE], files=files)


def load_card(bundle: Bundle) -> OnnxRunner:
    """Return the graphs of a bundle."""
    return load_runner(bundle, FP16_NATIVE, threads=1, register=register_emulated_operators)


@functools.cache
def card_runner(**settings: Any) -> OnnxRunner:
    """Return the graphs of a random model; settings: besides TINY."""
    with tempfile.TemporaryDirectory() as folder:
        return load_card(card_bundle(Path(folder), **settings))
