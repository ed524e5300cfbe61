"""A real server, engine and tokenizer with a fake runner in NumPy that translates a text to itself or fails."""

from __future__ import annotations

import asyncio
import functools
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from lingon.alignment import AttentionKind
from lingon.bundle.manifest import Alignment, Defaults, Limits, Manifest, Precision
from lingon.bundle.store import Bundle, write_bundle
from lingon.serving.decoding.job import Job
from lingon.serving.decoding.rules import Vocabulary
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.scheduler import Scheduler
from lingon.serving.guard import REASONS
from lingon.serving.models.loading import LoadOptions
from lingon.serving.runtime.runner import (
    AttentionChoice,
    AttentionSize,
    BatchShape,
    Encoded,
    Scored,
    Step,
)
from lingon.serving.runtime.shortlist import Shortlist
from lingon.serving.server import Server
from lingon.serving.settings import Settings
from lingon.serving.translation.translator import Translator
from lingon.text import BOS, EOS, PAD, UNK, Tokenizer
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.tokenizers import train_sentencepiece

LIMITS = Limits(max_source_tokens=32, max_target_tokens=64, output_factor=2.0, output_extra=8, max_beam_size=4)
CANDIDATES = 16
CORPUS = """Tom lives in Boston. The old man and the sea. I would like to know what time it is. Where is the station?
She has never been to Germany, but he has. They said: "It is raining." Nobody knows what comes next; we shall see.
Wie geht es dir heute? Der alte Mann und das Meer. Ich möchte wissen, wie spät es ist. Wo ist der Bahnhof? Grüße!"""


@functools.cache
def tokenizer_model() -> bytes:
    """Return a small sentencepiece model for both languages, with byte fallback."""
    options = {"model_type": "unigram", "hard_vocab_limit": False, "byte_fallback": True}
    return train_sentencepiece(CORPUS.splitlines(), 360, **options)


@functools.cache
def tokenizer() -> Tokenizer:
    return Tokenizer(tokenizer_model())


@functools.cache
def vocabulary() -> Vocabulary:
    return Vocabulary(tokenizer())


def manifest(name: str = "en-de", version: int = 1, **rest: Any) -> Manifest:
    size = tokenizer().source_vocab
    values: dict[str, Any] = {
        "name": name,
        "version": version,
        "created": "2026-01-01T00:00:00+00:00",
        "source_language": "en",
        "target_language": "de",
        "architecture": "echo",
        "source_vocab": size,
        "target_vocab": size,
        "special_ids": {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        "limits": LIMITS,
        "defaults": Defaults(),
        "candidates": CANDIDATES,
        "states": (),
        "precisions": {"fp32": Precision("CPUExecutionProvider", "fake", ())},
        "alignment": Alignment(0, (0,)),
    }
    return Manifest(**{**values, **rest})


def bundle(folder: Path, files: Mapping[str, bytes] | None = None, **rest: Any) -> Bundle:
    """Return a published bundle without graphs: models/NAME/VERSION. files: more of them."""
    declared = manifest(**rest)
    every = {"tokenizer.model": tokenizer_model(), **(files or {})}
    return write_bundle(folder / declared.name / str(declared.version), declared, every)


def warning_codes(result: pb.TextResult) -> list[int]:
    """Return the codes of the warnings of a result without the guard, which suspects an echo of copying."""
    suspicions = set(REASONS.values())
    return [warning.code for warning in result.warnings if warning.code not in suspicions]


def full_shortlist() -> Shortlist:
    """Return a shortlist with the whole vocabulary."""
    size = tokenizer().source_vocab
    always = np.array([EOS, *range(UNK + 1, size)], np.int32)
    return Shortlist(always, np.zeros(size + 1, np.int32), np.empty(0, np.int32))


class EchoRunner:
    """A Runner that outputs the tokens of the source, then the end token.

    gate: an event that every step waits for
    delay: seconds that a step takes
    faulty: a piece or token id whose texts fail
    endless: whether translations continue up to their length limit
    says: what it outputs for the tokens of a source, both with the end token; default: the same
    dies_at: the number of the step that raises, counted over the whole run
    """

    def __init__(
        self,
        *,
        delay: float = 0.0,
        faulty: str | int | None = None,
        endless: bool = False,
        dies_at: int | None = None,
        shortlist: Shortlist | None = None,
        limits: Limits = LIMITS,
        says: Callable[[list[int]], list[int]] | None = None,
    ) -> None:
        self.says = says
        self.gate = threading.Event()
        self.gate.set()
        self.limits, self.delay, self.endless, self.dies_at = limits, delay, endless, dies_at
        self.faulty = tokenizer().encode_source(faulty)[0] if isinstance(faulty, str) else faulty
        self.vocab = tokenizer().target_vocab
        self.steps = self.encoded = self.run_bytes = 0
        self.shortlist, self.any_width, self.steps_attend, self.spread = shortlist, False, False, 16

    def capacity(self, width: int) -> int:
        return self.limits.max_output(width)

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        self.encoded += len(source_ids)
        return {"source": source_ids}

    def open(self, shape: BatchShape, *, shortlist: bool = False) -> EchoBuffers:
        return EchoBuffers(self, shape)

    @property
    def attention(self) -> dict[AttentionKind, AttentionSize]:
        """No attention to choose from. The attention of `score` is for alignments."""
        return {}

    def score(
        self,
        source_ids: np.ndarray,
        source_lengths: np.ndarray,
        target_ids: np.ndarray,
        target_lengths: np.ndarray,
        choices: Sequence[AttentionChoice] = (),
    ) -> list[Scored]:
        """Give every token log-probability -0.25 and attention to the source token at its own position."""
        found = []
        for source, target in zip(source_lengths.tolist(), target_lengths.tolist(), strict=True):
            attention = np.full((target + 1, source), 0.01, np.float32)
            for position in range(target + 1):
                attention[position, min(position, source - 1)] = 0.9
            found.append(Scored(np.full(target + 1, -0.25, np.float32), attention))
        return found

    def free_memory(self) -> None:
        """Free nothing."""


class EchoBuffers:
    """The running batch of an EchoRunner."""

    def __init__(self, runner: EchoRunner, shape: BatchShape) -> None:
        self.runner, self.beam_size = runner, shape.beam_size
        self.sources: list[np.ndarray] = [np.array([EOS])] * shape.sentences
        self.token_ids, self.positions = np.zeros((2, shape.rows), np.int64)
        self.nbytes = 1
        self.candidates = 1 if shape.beam_size == 1 else 2 * shape.beam_size

    def place(self, slot: int, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        self.sources[slot] = encoded["source"][index]
        if self.runner.says is not None:
            source = self.sources[slot].tolist()
            self.sources[slot] = np.array(self.runner.says(source[: source.index(EOS) + 1]))

    def step(self, sentences: int, *, logits: bool) -> Step:
        runner, rows = self.runner, sentences * self.beam_size
        runner.gate.wait()
        time.sleep(runner.delay)
        runner.steps += 1
        self.nbytes += 1  # the buffers of a real runner grow too, for logits or a shortlist
        if runner.steps == runner.dies_at:
            raise RuntimeError("planted: canary text in a message")
        table = np.full((rows, runner.vocab), -20.0, np.float32)
        for row, position in enumerate(self.positions[:rows]):
            source = self.sources[row // self.beam_size]
            done = position >= len(source) or source[position] == EOS
            table[row, (source[0] if runner.endless else EOS) if done else source[position]] = -0.1
            table[row, -1] = -3.0  # a second candidate, so that beams and samples differ
            if runner.faulty is not None and runner.faulty in source:
                table[row] = np.nan
        ids = np.argsort(-table, axis=1, kind="stable")[:, : self.candidates]
        return Step(ids, np.take_along_axis(table, ids, axis=1), table if logits else None)

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, lengths: np.ndarray) -> int:
        return 0

    def move(self, source: int, target: int, length: int) -> int:
        self.sources[target] = self.sources[source]
        return 0


class Loader:
    """A stand-in for lingon.serving.models.loading.load_translator that loads a fake runner."""

    def __init__(self, runner: EchoRunner, engine: type[Engine] = Engine) -> None:
        self.runner, self.engine = runner, engine
        self.gate = threading.Event()  # every load waits for it
        self.gate.set()
        self.engines: list[Engine] = []
        self.started: list[Scheduler] = []  # of all engines, to which a reference would keep them alive

    def __call__(self, bundle: Bundle, options: LoadOptions) -> Translator:
        self.gate.wait()
        bundle.verify()
        engine = self.engine(self.runner, options.limits, options.observer)
        engine.start()
        self.started.append(engine.scheduler)
        self.runner.steps = 0  # so that the steps of the warm-up are not counted
        self.engines.append(engine)
        shortlist = None if self.runner.shortlist is None else bundle.manifest.defaults.shortlist
        return Translator(
            bundle,
            engine,
            options.limits,
            precision="fp32",
            provider="CPUExecutionProvider",
            shortlist=shortlist,
            cache=options.cache,
            second=options.second,
        )

    def end(self) -> None:
        """End all threads, also of a model whose loading ended after its server."""
        for thread in threading.enumerate():
            if thread.name == "loading":
                thread.join(10)
        for scheduler in self.started:
            scheduler.stop(0)


class RunningServer:
    """A running server and a channel to it. task: returns the exit code."""

    def __init__(
        self, server: Server, loader: Loader, task: asyncio.Task[int], channel: grpc.aio.Channel, folder: Path
    ) -> None:
        self.server, self.loader, self.task, self.channel, self.folder = server, loader, task, channel, folder
        self.runner = loader.runner
        self.stub: Any = pb_grpc.TranslationServiceStub(channel)  # the stub of grpc.aio

    def call(self, *texts: str, seconds: float | None = 20, **fields: Any) -> Any:
        """Send a Translate, and return the call."""
        return self.stub.Translate(pb.TranslateRequest(texts=texts, **fields), timeout=seconds)

    async def translate(self, *texts: str, **fields: Any) -> pb.TranslateResponse:
        reply: pb.TranslateResponse = await self.call(*texts, **fields)
        return reply

    async def stream(self, *texts: str, **fields: Any) -> list[pb.TranslateStreamResponse]:
        return [event async for event in self.stub.TranslateStream(pb.TranslateStreamRequest(texts=texts, **fields))]

    async def health(self, service: str = "") -> int:
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        reply: health_pb2.HealthCheckResponse = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        return reply.status

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of one time series. Raise KeyError for an unknown one, so that wrong names fail."""
        value = self.server.metrics.registry.get_sample_value(name, labels)
        if value is None:
            raise KeyError(f"{name}{labels}")
        return value


@asynccontextmanager
async def running_with(content: bytes, runner: EchoRunner, **values: Any) -> AsyncIterator[RunningServer]:
    """Run a server of a model with another tokenizer. content: of its file; values: of its manifest."""
    size = runner.vocab = Tokenizer(content).source_vocab
    own = {"files": {"tokenizer.model": content}, "source_vocab": size, "target_vocab": size, **values}
    async with running(runner, bundles=(own,)) as server:
        yield server


@asynccontextmanager
async def running(
    runner: EchoRunner | None = None,
    *,
    ready: bool = True,
    bundles: tuple[dict[str, Any], ...] = ({},),
    engine: type[Engine] = Engine,
    loader: type[Loader] | None = None,
    **settings: Any,
) -> AsyncIterator[RunningServer]:
    """Run a server on free ports in this process.

    ready: whether to wait until it serves, else until it listens; settings: of lingon.serving.settings
    """
    fake_loader = (loader or Loader)(runner or EchoRunner(), engine)
    if not ready:
        fake_loader.gate.clear()
    with tempfile.TemporaryDirectory() as folder:
        for values in bundles:
            bundle(Path(folder), **values)
        values = {"models": (folder,), "port": 0, "metrics_port": 0, "drain_seconds": 5, **settings}
        announced = asyncio.Event()
        server = Server(Settings.model_validate(values), lambda _: announced.set(), fake_loader)
        task = asyncio.create_task(server.run())
        waiting = asyncio.create_task(announced.wait() if ready else server.bound.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{server.port}")
        try:
            yield RunningServer(server, fake_loader, task, channel, Path(folder))
        finally:
            fake_loader.gate.set()
            fake_loader.runner.gate.set()
            if not task.done():
                server.stop()
            await asyncio.wait({task}, timeout=20)
            await channel.close()
            await asyncio.to_thread(fake_loader.end)


CANARY = "canary"
"""A text that must appear in no reply and no log."""


class BrokenEngine(Engine):
    """An engine that raises an unexpected error with CANARY in its message."""

    def submit(self, jobs: Sequence[Job]) -> None:
        raise ValueError(f"secret {CANARY} /etc/path")


async def failure(call: Awaitable[Any]) -> tuple[status_pb2.Status, dict[str, Any]]:
    """Return the status with which a call fails, and its trailing metadata."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    status = rpc_status.from_call(raised.value)  # type: ignore[arg-type]
    if status is None:
        status = status_pb2.Status(code=raised.value.code().value[0], message=raised.value.details())
    assert (status.code, status.message) == (raised.value.code().value[0], raised.value.details())
    return status, dict(raised.value.trailing_metadata())


def details(status: status_pb2.Status) -> dict[str, Any]:
    """Return the details of a status by the name of their message type."""
    kinds = [
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.RetryInfo,
        error_details_pb2.ResourceInfo,
    ]
    found = {}
    for packed in status.details:
        (kind,) = [kind for kind in kinds if packed.Is(kind.DESCRIPTOR)]
        message = kind()
        packed.Unpack(message)
        found[kind.DESCRIPTOR.name] = message
    assert found["ErrorInfo"].domain == "lingon"
    return found


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
