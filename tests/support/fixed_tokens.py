"""Steps of fixed tokens, whose log-probabilities can be compared to the last bit."""

from __future__ import annotations

import numpy as np

from lingon.serving.runtime.on_device.buffers import DeviceBuffers
from lingon.serving.runtime.on_host.buffers import OnnxBuffers
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape, Encoded, Step
from lingon.text import BOS, PAD

STEPS = 6


def encode(runner: OnnxRunner, sources: list[tuple[int, ...]], padding: int = 0) -> Encoded:
    longest = max(map(len, sources)) + padding
    ids = np.array([[*source, *[PAD] * (longest - len(source))] for source in sources])
    return runner.encode(ids, np.array([len(source) for source in sources]))


def step(
    buffers: OnnxBuffers | DeviceBuffers, tokens: list[int], positions: list[int], *, logits: bool = False
) -> Step:
    """Run one step; there is one token for every row."""
    buffers.token_ids[: len(tokens)], buffers.positions[: len(tokens)] = tokens, positions
    return buffers.step(len(tokens) // buffers.beam_size, logits=logits)


def decode(runner: OnnxRunner, encoded: Encoded, rows: list[int], width: int, capacity: int = 16) -> list[np.ndarray]:
    """The log-probabilities of the candidates in STEPS steps of fixed tokens, for some rows of an encoder batch."""
    buffers = runner.open(BatchShape(len(rows), 1, width, capacity))
    for slot, row in enumerate(rows):
        buffers.place(slot, encoded, row)
    found = []
    for number in range(STEPS):
        tokens = [BOS if number == 0 else 5 + number] * len(rows)
        found.append(step(buffers, tokens, [number] * len(rows)).candidate_log_probs.copy())
    return found
