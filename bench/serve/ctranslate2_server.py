"""A gRPC server for CTranslate2 with dynamic batching, as a user would write it.

`python -m lingon.bench.serve.ctranslate2_server --model BUNDLE` serves until it is stopped.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import grpc
import typer
from google.rpc import code_pb2, status_pb2

from lingon.bench.engines import ctranslate2
from lingon.bench.engines.base import Setting
from lingon.bench.engines.ctranslate2 import source_pieces, translator
from lingon.bundle.manifest import Limits, Manifest
from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import QueueFull, SettingsError
from lingon.text import EOS, UNK, Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb

Ids = Sequence[int]


class Search(NamedTuple):
    """The search options, the same for all sentences of a batch."""

    beam_size: int
    length_penalty: float


Translate = Callable[[list[Ids], Search], list[list[int]]]
"""Translate sources: returns the best hypothesis of each as token ids. It is called on a thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPolicy:
    """The rules that form batches.

    The defaults need the least CPU time on one core (shipped model, int8, 250 clients). CPU time of a sentence on a
    busy machine, in milliseconds with one worker and with two: 1.74 and 1.85 with batches of 8, 1.48 and 1.75 with 16,
    1.58 and 1.89 with 32, 1.79 and 2.2 with 64. It is 1.61 if similar lengths come from 2 batches of queued sentences,
    and 1.48 from 8 batches. Waiting 1 or 3 ms for more sentences saves nothing and makes light loads slower.
    """

    max_batch: int = 16  # sentences
    max_wait: float = 0.0  # seconds that the first sentence of a batch waits for others
    window: int = 8  # batches of queued sentences that are searched for similar lengths
    max_queue: int = 1024  # queued sentences; more are rejected

    def __post_init__(self) -> None:
        for name in ("max_batch", "window", "max_queue"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_wait < 0:
            raise SettingsError(f"max_wait must be at least 0, got {self.max_wait}")


def pick(lengths: Sequence[int], policy: BatchPolicy) -> list[int]:
    """Return the indices of the next batch, longest first: the oldest sentence, and sentences of similar length.

    lengths: tokens of the queued sentences, the oldest first. Only the first `window` batches are considered, which
    bounds how long a sentence is overtaken.
    """
    near = range(min(len(lengths), policy.window * policy.max_batch))
    chosen = sorted(near, key=lambda index: (abs(lengths[index] - lengths[0]), index))[: policy.max_batch]
    return sorted(chosen, key=lambda index: -lengths[index])


@dataclass(frozen=True, slots=True)
class QueuedSentence:
    """A sentence in the queue."""

    source: Ids
    search: Search
    since: float  # time.monotonic() when it was enqueued
    answer: asyncio.Future[list[int]]


class Batcher:
    """Batches of sentences of many requests for a few workers. It belongs to one event loop."""

    def __init__(self, translate: Translate, workers: int, policy: BatchPolicy) -> None:
        """workers: batches that are translated at the same time, each on its own thread."""
        self._translate, self._policy = translate, policy
        self._queue: list[QueuedSentence] = []
        self._arrived = asyncio.Event()
        self._gathering = asyncio.Lock()
        self._threads = ThreadPoolExecutor(workers)
        self._tasks = [asyncio.create_task(self._work()) for _ in range(workers)]

    async def translate(self, source: Ids, search: Search) -> list[int]:
        """Return the best hypothesis of a source. Cancelling removes the sentence from the queue."""
        if len(self._queue) >= self._policy.max_queue:
            raise QueueFull(f"the queue is full: {len(self._queue)} sentences")
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._queue.append(QueuedSentence(source, search, time.monotonic(), answer))
        self._arrived.set()
        return await answer

    async def close(self) -> None:
        """Stop the workers after their current batches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._gathering:
                batch = await self._gather()
            sources = [queued.source for queued in batch]
            try:
                found = await loop.run_in_executor(self._threads, self._translate, sources, batch[0].search)
            except Exception as error:
                _deliver(batch, [error] * len(batch))
            else:
                _deliver(batch, found)

    async def _gather(self) -> list[QueuedSentence]:
        """Wait for sentences and return the next batch."""
        while not (queued := self._next_search()):
            self._arrived.clear()
            await self._arrived.wait()
        if len(queued) < self._policy.max_batch:
            await asyncio.sleep(max(queued[0].since + self._policy.max_wait - time.monotonic(), 0))
            queued = self._next_search()
        if not queued:  # All of them have been cancelled in the meantime.
            return await self._gather()
        batch = [queued[index] for index in pick([len(each.source) for each in queued], self._policy)]
        taken = {id(each) for each in batch}
        self._queue = [each for each in self._queue if id(each) not in taken]
        return batch

    def _next_search(self) -> list[QueuedSentence]:
        """Drop cancelled sentences, and return the queued ones that have the search options of the oldest."""
        self._queue = [each for each in self._queue if not each.answer.done()]
        return [each for each in self._queue if each.search == self._queue[0].search]


def _deliver(batch: Sequence[QueuedSentence], outcomes: Sequence[list[int] | Exception]) -> None:
    for queued, outcome in zip(batch, outcomes, strict=True):
        if queued.answer.done():
            continue
        if isinstance(outcome, Exception):
            queued.answer.set_exception(outcome)
        else:
            queued.answer.set_result(outcome)


class Model:
    """A translator that runs `workers` batches at the same time, each on `threads` cores."""

    def __init__(self, folder: Path, limits: Limits, setting: Setting) -> None:
        """Load the model.

        folder: model files that lingon.bench.engines.ctranslate2.prepare has written
        limits: of the bundle that was converted
        """
        self._limits, self._source_pieces = limits, source_pieces(folder)
        self._translator = translator(folder, setting)
        self.translate([[UNK + 1, EOS]], Search(1, 0.0))  # Allocate memory and start threads before the first request.

    def translate(self, sources: Sequence[Ids], search: Search) -> list[list[int]]:
        """Return the best hypothesis of each source (token ids, EOS last), without end token. Release the GIL."""
        found = self._translator.translate_batch(
            [[self._source_pieces[token] for token in source] for source in sources],
            beam_size=search.beam_size,
            length_penalty=search.length_penalty,
            max_decoding_length=max(self._limits.max_output(len(source)) for source in sources),
        )
        return [[int(piece) for piece in result.hypotheses[0]] for result in found]


SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name


class CTranslate2Service:
    """A service that tokenises texts, translates them in batches, and detokenises the results."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, batcher: Batcher) -> None:
        self._manifest, self._tokenizer, self._batcher = manifest, tokenizer, batcher

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler for grpc.aio.Server. It returns UNIMPLEMENTED for the other methods."""
        translate = grpc.unary_unary_rpc_method_handler(
            self.translate, pb.TranslateRequest.FromString, pb.TranslateResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Translate": translate})

    async def translate(
        self, request: pb.TranslateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.TranslateResponse:
        """Translate as the proto file says, with the options beam_size and length_penalty only."""
        search = self._search(request.options)
        try:
            results = await asyncio.gather(*(self._translated(text, search) for text in request.texts))
        except QueueFull as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        manifest = self._manifest
        return pb.TranslateResponse(results=results, model=manifest.name, version=str(manifest.version))

    def _search(self, options: pb.DecodingOptions) -> Search:
        defaults = self._manifest.defaults
        beam_size = options.beam_size if options.HasField("beam_size") else defaults.beam_size
        penalty = options.length_penalty if options.HasField("length_penalty") else defaults.length_penalty
        return Search(beam_size, penalty)

    async def _translated(self, text: str, search: Search) -> pb.TextResult:
        source = self._tokenizer.encode_source(normalise(text))
        most = self._manifest.limits.max_source_tokens
        if not 1 < len(source) <= most:
            message = f"a text must have 1 to {most - 1} tokens, got {len(source) - 1}"
            return pb.TextResult(status=status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=message))
        target = await self._batcher.translate(source, search)
        hypothesis = pb.Hypothesis(text=self._tokenizer.decode(target), finish_reason=pb.FINISH_REASON_END)
        usage = pb.Usage(source_tokens=len(source), target_tokens=len(target) + 1)
        return pb.TextResult(hypotheses=[hypothesis], usage=usage)


async def serve(bundle: Bundle, folder: Path, setting: Setting, policy: BatchPolicy, port: int) -> None:
    """Serve until SIGTERM or SIGINT, and print `ready: ... on HOST:PORT` once.

    folder: model files that lingon.bench.engines.ctranslate2.prepare has written
    """
    batcher = Batcher(Model(folder, bundle.manifest.limits, setting).translate, setting.workers, policy)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    service = CTranslate2Service(bundle.manifest, bundle.tokenizer(), batcher)
    server.add_generic_rpc_handlers((service.handler(),))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    name = f"{bundle.label} by CTranslate2 ({setting.precision}, {setting.workers} x {setting.threads} threads)"
    print(f"ready: {name} on 127.0.0.1:{bound}", flush=True)
    await stopping.wait()
    await server.stop(grace=None)
    await batcher.close()


def main(
    model: Annotated[Path, typer.Option(help="A bundle: models/NAME or models/NAME/VERSION.")] = Path("models/en-de"),
    converted: Annotated[
        Path | None, typer.Option(help="Folder with the converted bundle (default: convert it at start).")
    ] = None,
    port: Annotated[int, typer.Option(min=0, help="Port; 0 selects a free one.")] = 0,
    precision: Annotated[str, typer.Option(help="fp32 or int8.")] = "int8",
    workers: Annotated[int, typer.Option(min=1, help="Batches translated at the same time.")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="Threads of one worker.")] = 1,
) -> None:
    """Serve the weights of a bundle with CTranslate2."""
    bundle = open_bundle(model)
    setting = Setting(precision=precision, workers=workers, threads=threads)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as scratch:
        if converted is None:
            converted = Path(scratch) / "model"
            ctranslate2.prepare(bundle, converted)
        asyncio.run(serve(bundle, converted, setting, BatchPolicy(), port))


if __name__ == "__main__":
    typer.run(main)
