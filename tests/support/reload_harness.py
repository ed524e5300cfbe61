"""A server with an admin port, whose models are loaded and unloaded. Every version translates differently."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from lingon.admin.v1 import admin_pb2 as pb
from lingon.admin.v1 import admin_pb2_grpc as pb_grpc
from lingon.bundle.golden import Golden
from lingon.bundle.names import GOLDEN
from lingon.bundle.store import Bundle, write_bundle
from lingon.serving.engine.engine import Engine
from lingon.serving.models.loading import LoadOptions, check_golden
from lingon.serving.runtime.runner import Encoded
from lingon.serving.translation.translator import Translator
from lingon.text import EOS
from tests.support.echo_engine import EchoRunner, Loader, RunningServer, manifest, running, tokenizer, tokenizer_model

TEXT = "Tom lives in Boston."


def expected(text: str, version: str | int) -> str:
    """Return the translation of a text: odd versions return the text, even ones its pieces in reverse order."""
    return text if int(version) % 2 else tokenizer().decode(tokenizer().encode_source(text)[-2::-1])


class ReversingRunner(EchoRunner):
    """A runner that outputs the source in reverse order."""

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        reversed_ids = np.full_like(source_ids, EOS)
        for row, length in enumerate(source_lengths.tolist()):
            reversed_ids[row, : length - 1] = source_ids[row, : length - 1][::-1]
        return super().encode(reversed_ids, source_lengths)


class VersionedLoader(Loader):
    """A loader that gives every version its own runner.

    broken: by version, a function that creates another runner or raises an error
    """

    def __init__(self, runner: EchoRunner, engine: type[Engine] = Engine) -> None:
        super().__init__(runner, engine)
        self.runners: dict[int, EchoRunner] = {}
        self.broken: dict[int, Callable[[], EchoRunner]] = {}

    def __call__(self, bundle: Bundle, options: LoadOptions) -> Translator:
        options.on_phase("checksums")
        self.gate.wait()
        bundle.verify()
        version = bundle.manifest.version
        runner = self.broken.get(version, EchoRunner if version % 2 else ReversingRunner)()
        runner.gate = self.runners[version].gate if version in self.runners else runner.gate
        runner.delay = self.runner.delay
        if options.golden:
            options.on_phase("golden_sentences")
            check_golden(bundle, runner, "fp32")
        engine = self.engine(runner, options.limits, options.observer)
        engine.start()
        self.started.append(engine.scheduler)
        self.runners[version] = runner
        return Translator(
            bundle,
            engine,
            options.limits,
            precision="fp32",
            provider="CPUExecutionProvider",
            graph_bytes=7,
            cache=options.cache,
        )


@dataclass
class AdministeredServer:
    """A running server and a channel to its admin port."""

    server: RunningServer
    channel: grpc.aio.Channel
    earlier: set[threading.Thread]

    @property
    def versions(self) -> VersionedLoader:
        assert isinstance(self.server.loader, VersionedLoader)
        return self.server.loader

    def threads(self) -> list[threading.Thread]:
        """Return the threads of this server that run engines or load models."""
        alive = [thread for thread in threading.enumerate() if thread.name.startswith(("engine", "loading"))]
        return [thread for thread in alive if thread not in self.earlier]

    def publish(self, version: int, golden: str | None = None, **rest: Any) -> Path:
        """Write a bundle into the folder of the models. golden: its golden translation of TEXT."""
        declared = manifest(version=version, **rest)
        files = {"tokenizer.model": tokenizer_model()}
        if golden is not None:
            files[GOLDEN] = Golden((TEXT,), {"fp32": (golden,)}).to_bytes()
        return write_bundle(self.server.folder / declared.name / str(version), declared, files).folder

    async def call(self, method: str, request: Any, seconds: float | None = 20) -> Any:
        stub: Any = pb_grpc.ModelServiceStub(self.channel)
        return await getattr(stub, method)(request, timeout=seconds)

    async def swap(self, path: Path | str) -> pb.SwapModelResponse:
        reply: pb.SwapModelResponse = await self.call("SwapModel", pb.SwapModelRequest(path=str(path)))
        return reply

    async def load(self, path: Path | str) -> pb.Model:
        model: pb.Model = (await self.call("LoadModel", pb.LoadModelRequest(path=str(path)))).model
        return model

    async def unload(self, name: str, version: str) -> None:
        await self.call("UnloadModel", pb.UnloadModelRequest(name=name, version=version))

    async def models(self) -> list[tuple[str, str, str]]:
        """Return name, version and state of all models."""
        reply = await self.call("ListModels", pb.ListModelsRequest())
        states = pb.ModelState.DESCRIPTOR.values_by_number
        return [(model.name, model.version, states[model.state].name.split("_")[-1]) for model in reply.models]

    async def version(self, **request: Any) -> str:
        """Return the version that answers a request, after a check that it also made the translation."""
        reply = await self.server.translate(TEXT, **request)
        assert reply.results[0].hypotheses[0].text == expected(TEXT, reply.version)
        return reply.version

    def changes(self, outcome: str) -> float:
        return self.server.metric("lingon_model_changes_total", outcome=outcome)


@asynccontextmanager
async def running_with_admin_port(
    runner: EchoRunner | None = None, *, bundles: Iterable[dict[str, Any]] = ({},), **settings: Any
) -> AsyncIterator[AdministeredServer]:
    """Run a server with version 1 of en-de, or other bundles. settings: of lingon.serving.settings."""
    earlier = set(threading.enumerate())
    async with (
        running(runner, bundles=tuple(bundles), loader=VersionedLoader, admin_port=0, **settings) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.server.admin_port}") as channel,
    ):
        yield AdministeredServer(server, channel, earlier)


async def refused(call: Any) -> tuple[str, str]:
    """Return the status and the message of a call, which must fail."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    raise AssertionError("the call did not fail")


def gauges(page: str) -> list[str]:
    """Return the series of models that are not counters."""
    names = ("queue_depth", "queue_limit", "graph_bytes", "state_bytes", "model_info", "model_load_")
    heads = tuple(f"lingon_{name}" for name in names)
    return [line.rpartition(" ")[0] for line in page.splitlines() if line.startswith(heads)]
