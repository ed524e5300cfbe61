"""Servers and an engine to compare a server with: `python -m lingon.bench.serve.baselines KIND [MODEL]`.

`lingon`, the server without its graphs: every sentence ends after one step, without a token;
`echo`, a bare grpc.aio server that answers at once, with the lowest cost of a call;
`engine`, the engine without a server, which times single sentences from tokens to tokens. It reads JSON lines: first
the model and the texts, then beam sizes.

`lingon bench serve --engine null` measures the first two.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from lingon.alignment import AttentionKind
from lingon.bench.worker_process import send_errors
from lingon.bundle.manifest import Limits
from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import RequestError
from lingon.machine import usable_cores
from lingon.serving.decoding.job import DecodeJob
from lingon.serving.engine.engine import Engine
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.runtime.runner import AttentionChoice, AttentionSize, BatchShape, Encoded, Scored, Step
from lingon.serving.runtime.shortlist import Shortlist
from lingon.serving.server import serve
from lingon.serving.settings import Settings
from lingon.serving.translation.translator import Translator
from lingon.text import EOS, normalise
from lingon.translation.v1 import translation_pb2 as pb

HOST = "127.0.0.1"
SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name


class NullBuffers:
    """Buffers (lingon.serving.runtime.runner) whose every step ends every row."""

    nbytes = 0

    def __init__(self, shape: BatchShape) -> None:
        rows = shape.sentences * shape.beam_size
        candidates = 1 if shape.beam_size == 1 else 2 * shape.beam_size
        self.token_ids, self.positions = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._ids = np.full((rows, candidates), EOS)
        self._log_probs = np.zeros((rows, candidates), np.float32)
        self._beam_size = shape.beam_size

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None: ...

    def step(self, sentences: int, *, logits: bool) -> Step:
        """Return EOS as the only candidate of each row."""
        rows = sentences * self._beam_size
        return Step(self._ids[:rows], self._log_probs[:rows], self._log_probs[:rows] if logits else None)

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        """Copy nothing."""
        return 0

    def move(self, source: int, target: int, length: int) -> int:
        """Move nothing."""
        return 0


class NullRunner:
    """A Runner (lingon.serving.runtime.runner) that runs no graph."""

    shortlist: Shortlist | None = None
    any_width = False
    steps_attend = False
    spread = 16
    run_bytes = 0

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def capacity(self, width: int) -> int:
        """Return the target tokens of a row whose sources have this width."""
        return self.limits.max_output(width)

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        """Return no states."""
        return {}

    def open(self, shape: BatchShape, *, shortlist: bool = False) -> NullBuffers:
        """Return buffers without states."""
        return NullBuffers(shape)

    @property
    def attention(self) -> dict[AttentionKind, AttentionSize]:
        """There is none."""
        return {}

    def score(
        self,
        source_ids: np.ndarray,
        source_lengths: np.ndarray,
        target_ids: np.ndarray,
        target_lengths: np.ndarray,
        choices: Sequence[AttentionChoice] = (),
    ) -> list[Scored]:
        """Return zeros."""
        sizes = zip(source_lengths.tolist(), (target_lengths + 1).tolist(), strict=True)
        return [Scored(np.zeros(target), np.zeros((target, source))) for source, target in sizes]

    def free_memory(self) -> None:
        """Free nothing."""


async def echo(request: pb.TranslateRequest, context: Any) -> pb.TranslateResponse:
    """Return the texts of a request as their translations."""
    results = [pb.TextResult(hypotheses=[pb.Hypothesis(text=text)]) for text in request.texts]
    return pb.TranslateResponse(results=results, model="echo", version="1")


def load_null(bundle: Bundle, options: LoadOptions) -> Translator:
    """Return a translator with the bundle's tokenizer and limits, and a null engine."""
    engine = Engine(NullRunner(bundle.manifest.limits), options.limits, options.observer)
    engine.start()
    return Translator(bundle, engine, options.limits, precision="null", provider="CPUExecutionProvider")


async def serve_echo() -> None:
    """Serve echoes until SIGTERM."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    reply = pb.TranslateResponse.SerializeToString
    handler = grpc.unary_unary_rpc_method_handler(echo, pb.TranslateRequest.FromString, reply)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Translate": handler}),))
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    print(f"ready: echo on {HOST}:{port}", flush=True)
    await server.wait_for_termination()


def serve_null(model: Path) -> int:
    """Serve a bundle without its graphs until SIGTERM, and return the exit code."""
    folder = open_bundle(model).folder
    settings = Settings.model_validate({"models": (folder,), "port": 0, "metrics_port": 0, "device": "cpu"})
    return serve(settings, lambda line: print(line, flush=True), load_null)


class EngineBaseline:
    """An engine, loaded as the server loads it."""

    def __init__(self, model: Path, precision: str | None, threads: int | None, texts: list[str]) -> None:
        bundle = open_bundle(model)
        tokenizer = bundle.tokenizer()
        self._limits = bundle.manifest.limits
        self._sources = [tuple(tokenizer.encode_source(normalise(text))) for text in texts]
        options = LoadOptions(device="cpu", precision=precision, threads=threads or usable_cores())
        self._translator = load_translator(bundle, options)

    def times(self, beam_size: int) -> list[float]:
        """Return the milliseconds of each sentence, decoded one after the other."""
        requested = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=1, length_penalty=0.0)
        chosen = self._translator.resolve(requested)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        found = []
        for source in self._sources:
            options = chosen.job_options(self._limits.max_output(len(source)), 0)
            start = time.perf_counter()
            self._translator.engine.submit([DecodeJob(source_ids=source, options=options, on_done=answers.put)])
            outcome = answers.get()
            found.append(1000 * (time.perf_counter() - start))
            if isinstance(outcome, RequestError):
                raise outcome
        return found


def time_sentences() -> None:
    """Answer messages until standard input ends."""
    first = json.loads(sys.stdin.readline())
    with send_errors():
        baseline = EngineBaseline(Path(first["model"]), first["precision"], first["threads"], first["texts"])
        print(json.dumps({"model": "loaded"}), flush=True)
        for line in sys.stdin:
            print(json.dumps({"times": baseline.times(json.loads(line)["beam_size"])}), flush=True)


def main(kind: str, *model: str) -> int:
    """Run a baseline, and return the exit code."""
    if kind == "lingon":
        return serve_null(Path(*model))
    if kind == "echo":
        asyncio.run(serve_echo())
    else:
        time_sentences()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
