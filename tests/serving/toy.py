"""A runner of a few lines of NumPy at the engine's seam: it counts what it was asked and fails when told to."""

from __future__ import annotations

import threading

import numpy as np

from lingon.bundle import Limits
from lingon.text import EOS, UNK
from serving.job import Scored
from serving.runner import Encoded, Step

VOCAB, CANDIDATES = 64, 16


class ToyRunner:
    """Copies the source, token by token, then ends.

    gate: where it is not set, the decoder waits for it at every step
    faulty: a source that holds this token gets NaN for log-probabilities
    fails_at: the step of the whole run at which the decoder raises
    endless: never ends a translation
    """

    def __init__(self, *, faulty: int | None = None, fails_at: int | None = None, endless: bool = False) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.faulty, self.fails_at, self.endless = faulty, fails_at, endless
        self.steps = self.encoded = self.rows = 0

    @property
    def limits(self) -> Limits:
        return Limits(100, 256, 2.0, 16, 4)

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        self.encoded += len(source_ids)
        return {"source": source_ids}

    def open(self, sentences: int, beam_size: int, width: int, capacity: int) -> ToyBuffers:
        return ToyBuffers(self, sentences, beam_size)

    def score(
        self, source_ids: np.ndarray, source_lengths: np.ndarray, target_ids: np.ndarray, target_lengths: np.ndarray
    ) -> list[Scored]:
        sizes = zip(target_lengths.tolist(), source_lengths.tolist(), strict=True)
        return [Scored(np.zeros(target + 1), np.full((target + 1, source), 1 / source)) for target, source in sizes]


class ToyBuffers:
    def __init__(self, runner: ToyRunner, sentences: int, beam_size: int) -> None:
        self.runner, self.beam_size = runner, beam_size
        self.sources: list[np.ndarray] = [np.array([EOS])] * sentences

    def place(self, slot: int, encoded: Encoded, index: int) -> None:
        self.sources[slot] = encoded["source"][index]

    def step(self, sentences: int, token_ids: np.ndarray, positions: np.ndarray, *, logits: bool) -> Step:
        self.runner.gate.wait()
        self.runner.steps += 1
        self.runner.rows += len(token_ids)
        if self.runner.steps == self.runner.fails_at:
            raise RuntimeError("planted: secret text")
        table = np.full((len(token_ids), VOCAB), -20.0, np.float32)
        for row, position in enumerate(positions):
            source = self.sources[row // self.beam_size]
            done = position >= len(source) or source[position] == EOS
            table[row, (UNK + 1 if self.runner.endless else EOS) if done else source[position]] = -0.1
            if self.runner.faulty is not None and self.runner.faulty in source:
                table[row] = np.nan
        ids = np.argsort(-table, axis=1, kind="stable")[:, :CANDIDATES]
        return Step(ids, np.take_along_axis(table, ids, axis=1), table if logits else None)

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, length: int) -> int:
        return 0

    def move(self, source: int, target: int, length: int) -> int:
        self.sources[target] = self.sources[source]
        return 0
