"""Which calls of gRPC go through a proxy of the environment: none to this machine, and errors name the variable."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from lingon.client.address import START, is_local, no_answer

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
"""The variables that gRPC reads, in its order, whether a call uses TLS or not."""

EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
"""Variables with hosts, or ends of their names, that need no proxy; gRPC reads the first that is set."""

NO_PROXY = ("grpc.enable_http_proxy", 0)
"""The option of a channel that uses no proxy, whatever the environment says."""


class Proxy(NamedTuple):
    """A proxy of the environment: the variable that names it, and its HOST:PORT."""

    variable: str
    address: str


def proxy_options(target: str) -> tuple[tuple[str, int], ...]:
    """The options of a channel to a server: a proxy elsewhere could not reach an address of this machine."""
    return (NO_PROXY,) if is_local(target) else ()


def proxy_of(target: str) -> Proxy | None:
    """The proxy through which gRPC calls a server, if a channel may use one; None without one."""
    if is_local(target) or target.startswith(("unix:", "unix-abstract:", "vsock:")):
        return None
    for variable in VARIABLES:
        if value := os.environ.get(variable):
            address = re.sub(r"^\w+://", "", value).rpartition("@")[2]  # without the password
            return None if _is_excepted(target) else Proxy(variable, address.rstrip("/"))
    return None


def through_proxy(proxy: Proxy) -> str:
    """What an error adds for a call that went through a proxy."""
    return (
        f"the call goes through the proxy {proxy.address} that the environment variable {proxy.variable} names; unset "
        "it, or add the host of the server to no_proxy"
    )


def unavailable(server: str, details: str, proxy: Proxy | None, *, tls: bool, start: str = START) -> str:
    """Why no answer came from a server, see `no_answer`; proxy: through which the call went."""
    if proxy is None:
        return no_answer(server, details, tls=tls, start=start)
    if "Connection refused" in details:
        return f"no answer from {server}: nothing listens at the proxy; {through_proxy(proxy)}"
    return f"{no_answer(server, details, tls=tls, start=start)}; {through_proxy(proxy)}"


def _is_excepted(target: str) -> bool:
    """Whether a variable says that a server needs no proxy."""
    host = target.removeprefix("dns:").lstrip("/").rpartition(":")[0].strip("[]").lower()
    listed = next((value for name in EXCEPTIONS if (value := os.environ.get(name))), "")
    return any(end == "*" or host.endswith(end) for end in map(str.strip, listed.lower().split(",")) if end)
