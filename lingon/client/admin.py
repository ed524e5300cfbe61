"""The client of a server's admin port: which models it has, and changing them while it serves."""

from __future__ import annotations

from typing import TypeVar

from lingon.admin.v1 import admin_pb2 as pb
from lingon.client.client import Caller
from lingon.client.messages import in_bounds
from lingon.client.protocol import Method
from lingon.client.tls import Tls

Request = TypeVar("Request", pb.LoadModelRequest, pb.SwapModelRequest, pb.UnloadModelRequest)

DEFAULT_ADMIN = "127.0.0.1:50052"

_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['ModelService'].full_name}"
LIST = Method(f"{_SERVICE}/ListModels", pb.ListModelsResponse.FromString)
LOAD = Method(f"{_SERVICE}/LoadModel", pb.LoadModelResponse.FromString)
SWAP = Method(f"{_SERVICE}/SwapModel", pb.SwapModelResponse.FromString)
UNLOAD = Method(f"{_SERVICE}/UnloadModel", pb.UnloadModelResponse.FromString)


class ModelsClient(Caller):
    """One call is one try: a change that was refused, or whose answer was lost, is not made twice by itself.

    A timeout ends the waiting, not the change.
    """

    def __init__(
        self,
        target: str = DEFAULT_ADMIN,
        *,
        timeout: float = 600.0,
        tls: bool | Tls = False,
        api_key: str | None = None,
    ) -> None:
        """target: host:port of the admin port; timeout: seconds for each call; tls, api_key: as of `Client`."""
        super().__init__(target, timeout=timeout, retries=0, tls=tls, api_key=api_key)

    def models(self) -> list[pb.Model]:
        """What is there, by name and version."""
        return list(self._play(self._calls.call(LIST, pb.ListModelsRequest())).models)

    def load(self, path: str) -> pb.Model:
        """Serve the bundle at a path of the server's machine too."""
        return self._play(self._calls.call(LOAD, _asked(pb.LoadModelRequest, path=path))).model

    def swap(self, path: str) -> tuple[pb.Model, list[str]]:
        """Serve the bundle in the place of all other versions of its name; returns it and what is gone."""
        reply = self._play(self._calls.call(SWAP, _asked(pb.SwapModelRequest, path=path)))
        return reply.model, list(reply.unloaded)

    def unload(self, name: str, version: str) -> None:
        """Serve a version no more."""
        self._play(self._calls.call(UNLOAD, _asked(pb.UnloadModelRequest, name=name, version=version)))


def _asked(kind: type[Request], **values: str) -> Request:
    """A request; raises SettingsError where a value is not UTF-8."""
    with in_bounds():
        return kind(**values)
