r"""Lingon on a Ray cluster: the gRPC service on Ray Serve, and what translates a dataset of Ray Data.

Every replica runs a server of its own and passes calls on to it with their metadata. Ray Serve does placement, scaling
and balancing. The rows of all calls of a replica are decoded in one batch.

    serve start --grpc-port 9000 --grpc-servicer-functions \
        lingon.translation.v1.translation_pb2_grpc.add_TranslationServiceServicer_to_server
    serve run lingon.ray:app models=/models/en-de cores=4

    dataset.map_batches(lingon.ray.Translate, fn_constructor_kwargs={...}, batch_format="pyarrow", compute=...)
"""

from __future__ import annotations

import ctypes
import math
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from ray import serve
from ray.serve import Application
from ray.serve.grpc_util import RayServegRPCContext

from lingon.bulk.translating import Translate as Translate
from lingon.client.client import CHANNEL_OPTIONS
from lingon.client.connection import NO_PROXY
from lingon.errors import LingonError, SettingsError
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

CALLS = 512  # of a replica at once; the server has a queue and bounds of its own
READY = "ready: "
PR_SET_PDEATHSIG = 1  # of prctl(2)
OWN = ("grpc-", "content-type", "user-agent", "te", "application", "request_id", "multiplexed_model_id")
"""Beginnings of the names of metadata that belong to the connection or to Ray Serve."""


class _ServerProcess:
    """A server in a process of its own, which ends with this one."""

    def __init__(self, arguments: list[str]) -> None:
        command = [sys.executable, "-m", "lingon", "serve", *arguments]
        command += ["--host", "127.0.0.1", "--port", "0", "--metrics-host", "127.0.0.1", "--metrics-port", "0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=_end_with_parent)
        assert self._process.stdout is not None
        line = next((line for line in self._process.stdout if line.startswith(READY)), "")
        if not line:
            raise LingonError(f"the server of this replica ended with exit code {self._process.wait()}")
        self.address = line.split(" on ")[1].split(",")[0]

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Drain and end."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()


def _end_with_parent() -> None:
    """Let the kernel send SIGTERM to this process when its parent is gone, however it ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@serve.deployment(name="TranslationService", max_ongoing_requests=CALLS)
class Replica:
    """A replica of the service. Its methods are those of the proto file."""

    def __init__(self, arguments: list[str]) -> None:
        """arguments: of `lingon serve`."""
        self._server = _ServerProcess(arguments)
        self._channel = grpc.aio.insecure_channel(self._server.address, (*CHANNEL_OPTIONS, NO_PROXY))
        self._stub: Any = pb_grpc.TranslationServiceStub(self._channel)

    async def Translate(self, request: pb.TranslateRequest, grpc_context: RayServegRPCContext) -> Any:
        """See the proto file."""
        return await _passed_on(self._stub.Translate, request, grpc_context, pb.TranslateResponse)

    async def Score(self, request: pb.ScoreRequest, grpc_context: RayServegRPCContext) -> Any:
        """See the proto file."""
        return await _passed_on(self._stub.Score, request, grpc_context, pb.ScoreResponse)

    async def ListModels(self, request: pb.ListModelsRequest, grpc_context: RayServegRPCContext) -> Any:
        """See the proto file."""
        return await _passed_on(self._stub.ListModels, request, grpc_context, pb.ListModelsResponse)

    async def DetectLanguages(self, request: pb.DetectLanguagesRequest, grpc_context: RayServegRPCContext) -> Any:
        """See the proto file."""
        return await _passed_on(self._stub.DetectLanguages, request, grpc_context, pb.DetectLanguagesResponse)

    async def TranslateStream(
        self, request: pb.TranslateStreamRequest, grpc_context: RayServegRPCContext
    ) -> AsyncIterator[pb.TranslateStreamResponse]:
        """See the proto file. An error has its code and message, but no details: only a message could carry them."""
        call = self._stub.TranslateStream(request, **_of_call(grpc_context))
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            _set_status(grpc_context, error)
            raise
        finally:
            call.cancel()

    def check_health(self) -> None:
        """Raise an error if the server has ended, so that Ray Serve replaces the replica."""
        if not self._server.alive():
            raise LingonError("the server of this replica has ended")

    def __del__(self) -> None:
        if hasattr(self, "_server"):
            self._server.stop()


async def _passed_on(method: Any, request: Any, context: RayServegRPCContext, reply: Callable[[], Any]) -> Any:
    """Return the reply of the server, or its error: code, message and details.

    With an error the reply is empty, because Ray Serve drops the details of a call that raises an exception.
    """
    try:
        return await method(request, **_of_call(context))
    except grpc.aio.AioRpcError as error:
        _set_status(context, error)
        return reply()


def _of_call(context: RayServegRPCContext) -> dict[str, Any]:
    """Return the metadata of a call to the server. It has no deadline: Ray Serve cancels the call at the client's."""
    return {"metadata": [each for each in context.invocation_metadata() if not each[0].startswith(OWN)]}


def _set_status(context: RayServegRPCContext, error: grpc.aio.AioRpcError) -> None:
    context.set_code(error.code())
    context.set_details(error.details() or "")
    trailers: Any = error.trailing_metadata() or ()
    context.set_trailing_metadata(list(trailers))


def app(arguments: dict[str, str]) -> Application:
    """Return the application for `serve run lingon.ray:app NAME=VALUE ...` and for `args` of a Serve config.

    models: paths of bundles, separated by commas; cores: CPU cores of a replica, 1 by default; gpus: 0 by default
    replicas: N or LO..HI, 1 by default. Other names are options of `lingon serve`, such as precision
    """
    given = dict(arguments)
    models = given.pop("models", "")
    if not models:
        raise SettingsError("lingon.ray:app needs models=PATH")
    cores, gpus = float(given.pop("cores", "1")), float(given.pop("gpus", "0"))
    low, _, high = given.pop("replicas", "1").partition("..")
    options = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    if "engines" not in given and not gpus:
        options += ["--engines", str(math.ceil(cores)), "--threads", "1"]
    scale: dict[str, Any] = {"num_replicas": int(low)}
    if high:
        scale = {"autoscaling_config": {"min_replicas": int(low), "max_replicas": int(high)}}
    deployment = Replica.options(  # type: ignore[attr-defined]
        ray_actor_options={"num_cpus": cores, "num_gpus": gpus}, **scale
    )
    return deployment.bind([*models.split(","), *options])
