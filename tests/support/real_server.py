"""A server with the shipped model in this process, and a channel to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from lingon.serving.server import Server
from lingon.serving.settings import Settings
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.shipped_model import MODEL


@dataclass(frozen=True, slots=True)
class RealServer:
    """A ready server and a stub for it."""

    server: Server
    stub: Any

    async def translate(
        self, texts: list[str], text: pb.TextOptions | None = None, **options: Any
    ) -> pb.TranslateResponse:
        asked = pb.DecodingOptions(return_tokens=True, **options)
        request = pb.TranslateRequest(texts=texts, options=asked, text=text)
        reply: pb.TranslateResponse = await self.stub.Translate(request, timeout=60)
        return reply

    def counted(self, name: str, **labels: str) -> float:
        """The value of a counter; 0 if nothing was counted yet."""
        return self.server.metrics.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[RealServer]:
    """Run a server with the shipped model; settings: those of lingon.serving.settings."""
    values = {"models": (MODEL,), "port": 0, "metrics_port": 0, "engines": 1, "threads": 1, **settings}
    announced = asyncio.Event()
    server = Server(Settings.model_validate(values), lambda _: announced.set())
    task = asyncio.create_task(server.run())
    waiting = asyncio.create_task(announced.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            stub: Any = pb_grpc.TranslationServiceStub(channel)
            yield RealServer(server, stub)
    finally:
        server.stop()
        await task
