"""The client of a server's admin port: lists its models and changes them while it serves."""

from __future__ import annotations

from lingon.admin.v1 import admin_pb2 as pb
from lingon.client.client import SyncClientBase
from lingon.client.protocol.steps import Method
from lingon.client.tls import Tls
from lingon.client.values.messages import write_request

DEFAULT_ADMIN_PORT = 50052
DEFAULT_ADMIN = f"127.0.0.1:{DEFAULT_ADMIN_PORT}"

_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['ModelService'].full_name}"
LIST = Method(f"{_SERVICE}/ListModels", pb.ListModelsResponse.FromString)
LOAD = Method(f"{_SERVICE}/LoadModel", pb.LoadModelResponse.FromString)
SWAP = Method(f"{_SERVICE}/SwapModel", pb.SwapModelResponse.FromString)
UNLOAD = Method(f"{_SERVICE}/UnloadModel", pb.UnloadModelResponse.FromString)


class ModelsClient(SyncClientBase):
    """Lists, loads, swaps and unloads the models of a server.

    A call is sent once: a change that was refused or whose answer was lost is never repeated. A timeout ends the
    waiting; the server still completes the change.
    """

    _default_port = DEFAULT_ADMIN_PORT
    _start = "start the server with --admin-port"
    _where = "models are listed and changed on the admin port, --admin-port of `lingon serve`"

    def __init__(
        self,
        target: str = DEFAULT_ADMIN,
        *,
        timeout: float = 600.0,
        tls: bool | Tls = False,
        api_key: str | None = None,
        insecure: bool = False,
    ) -> None:
        """Store the settings.

        target: host:port of the admin port; without a port 50052 is taken
        timeout: seconds for each call; the others are those of `Client`
        """
        super().__init__(target, timeout=timeout, retries=0, tls=tls, api_key=api_key, insecure=insecure)

    def models(self) -> list[pb.Model]:
        """The models of the server, ordered by name and version."""
        return list(self._drive(self._protocol.call(LIST, pb.ListModelsRequest())).models)

    def load(self, path: str) -> pb.Model:
        """Serve the bundle at this path of the server's machine in addition to those that are served."""
        return self._drive(self._protocol.call(LOAD, write_request(pb.LoadModelRequest, path=path))).model

    def swap(self, path: str) -> tuple[pb.Model, list[str]]:
        """Serve the bundle in place of all other versions of its name; returns it and the versions unloaded."""
        reply = self._drive(self._protocol.call(SWAP, write_request(pb.SwapModelRequest, path=path)))
        return reply.model, list(reply.unloaded)

    def unload(self, name: str, version: str) -> None:
        """Stop serving a version."""
        self._drive(self._protocol.call(UNLOAD, write_request(pb.UnloadModelRequest, name=name, version=version)))
