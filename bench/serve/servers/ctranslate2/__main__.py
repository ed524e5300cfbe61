"""`python -m lingon.bench.serve.servers.ctranslate2 --model BUNDLE`: CTranslate2 with gRPC and dynamic batching."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import grpc
import typer

from lingon.bench.engines import ctranslate2
from lingon.bench.engines.base import Setting
from lingon.bench.serve.servers.ctranslate2.batching import Batcher, BatchPolicy
from lingon.bench.serve.servers.ctranslate2.model import Model
from lingon.bench.serve.servers.ctranslate2.service import CTranslate2Service
from lingon.bundle import Bundle, open_bundle


async def serve(bundle: Bundle, folder: Path, setting: Setting, policy: BatchPolicy, port: int) -> None:
    """Serve until SIGTERM or SIGINT; prints `ready: ... on HOST:PORT` once.

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
    max_batch: Annotated[int, typer.Option(min=1, help="Sentences in a batch, at most.")] = BatchPolicy().max_batch,
    max_wait_ms: Annotated[float, typer.Option(min=0, help="Milliseconds to wait for a full batch.")] = (
        1000 * BatchPolicy().max_wait
    ),
    window: Annotated[
        int, typer.Option(min=1, help="Search for similar lengths in this many batches of queued sentences.")
    ] = (BatchPolicy().window),
) -> None:
    """Serve the weights of a bundle with CTranslate2."""
    bundle = open_bundle(model)
    setting = Setting(precision=precision, workers=workers, threads=threads)  # type: ignore[arg-type]
    policy = BatchPolicy(max_batch=max_batch, max_wait=max_wait_ms / 1000, window=window)
    with tempfile.TemporaryDirectory() as scratch:
        if converted is None:
            converted = Path(scratch) / "model"
            ctranslate2.prepare(bundle, converted)
        asyncio.run(serve(bundle, converted, setting, policy, port))


if __name__ == "__main__":
    typer.run(main)
