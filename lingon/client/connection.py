"""How a client connects: the address of a server, the proxies of the environment, TLS and the API key."""

from __future__ import annotations

import functools
import ipaddress
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from lingon.errors import SettingsError
from lingon.files import read_setting_file

if TYPE_CHECKING:
    import grpc

SCHEMES = ("dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds")
"""Those of gRPC's names, as in unix:/run/lingon.sock. An address that has one is passed on as it is."""

LAST_PORT = 65535

START = "start a server with `lingon serve`"  # what to do if nothing listens at an address


def with_port(address: str, port: int) -> str:
    """Return the address as HOST:PORT or a name of gRPC; port: taken if the address has none.

    Raises SettingsError for an address that gRPC would not understand, or would understand otherwise than its writer.
    """
    example = f"give HOST:PORT, such as 127.0.0.1:{port}"
    try:
        address.encode()
    except UnicodeEncodeError:
        raise SettingsError(f"server {address!r}: not UTF-8") from None
    scheme, colon, _ = address.partition(":")
    if colon and scheme in SCHEMES:
        return address
    if re.match(r"[\w+.-]+://", address):
        tls = "; TLS is turned on by tls= or --tls" if scheme == "https" else ""
        raise SettingsError(f"server {address}: {example}, without {scheme}://{tls}")
    host, given = _host_and_port(address)
    if not host or re.search(r"[\s/@]", host):
        raise SettingsError(f"server {address!r}: {example}")
    if given is None:
        return f"{host}:{port}"
    if not re.fullmatch("[0-9]+", given) or not 1 <= int(given) <= LAST_PORT:
        raise SettingsError(f"server {address}: the port must be 1 to {LAST_PORT}, got {given!r}")
    return address


def _host_and_port(address: str) -> tuple[str, str | None]:
    """Return the host, an IPv6 address in brackets, and the port, None if there is none."""
    if bracketed := re.fullmatch(r"(\[.*\])(?::(.*))?", address):
        return bracketed[1], bracketed[2]
    if address.count(":") > 1:
        return f"[{address}]", None
    host, colon, port = address.partition(":")
    return host, port if colon else None


def is_local(target: str) -> bool:
    """Return whether a gRPC target is this machine by its name alone: a loopback address, localhost or a Unix
    socket.
    """
    scheme, _, rest = target.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return True
    if scheme in ("ipv4", "ipv6"):
        return all(_is_loopback(address) for address in unquote(rest).lstrip("/").split(","))
    if scheme == "dns" and rest:
        rest = rest.removeprefix("///")
        return _is_loopback(rest) and not rest.startswith("/")  # //SERVER/NAME asks another name server
    return _is_loopback(target)


def _is_loopback(address: str) -> bool:
    """Return whether the host of HOST:PORT, [HOST]:PORT or HOST is localhost or a loopback address."""
    bracketed = re.fullmatch(r"\[(.*)\](:\w+)?", address)
    host = bracketed[1] if bracketed else address.rpartition(":")[0] if address.count(":") == 1 else address
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"


@functools.lru_cache(maxsize=1024)
def block_of(address: str) -> str:
    """Return the addresses that count as one caller: an IPv4 address; of IPv6 its block of 2^64, which one household
    has.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # the path of a Unix socket
        return address
    if isinstance(parsed, ipaddress.IPv4Address) or parsed.is_loopback:
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def no_answer(server: str, details: str, *, tls: bool, start: str = START) -> str:
    """Return why no answer came from a server, in the words of a user.

    details: gRPC's message for UNAVAILABLE. It has no codes for these causes, and one that no pattern fits is passed on
    tls: whether the client uses TLS
    start: what to do if nothing listens there
    """
    closed = "a client certificate (--tls-client-certificate)" if tls else "TLS (--tls or --tls-ca, in Python tls=)"
    for pattern, why in (*_CAUSES, (_CLOSED, f"it closed the connection at once; it may expect {closed}")):
        if found := re.search(pattern, details):
            return f"no answer from {server}: {found.expand(why)}"
    if refused := re.search(r"ip(?:v4|v6):(\S+): Failed to connect to remote host: Connection refused", details):
        return f"no answer from {server}: {_refused(server, unquote(refused[1]), start)}"
    return f"no answer from {server} (does a server run there?): {details}"


_CAUSES = (
    (
        r"CERTIFICATE_VERIFY_FAILED: (.+?)(?:: OK)?$",
        r"its certificate is not trusted (\1); an authority of your own is named with --tls-ca or Tls(ca=...)",
    ),
    (
        "Hostname Verification Check failed",
        "its certificate is for another host; give the name in the certificate with --tls-server-name or "
        "Tls(server_name=...)",
    ),
    ("Tls handshake failed.*WRONG_VERSION_NUMBER", "it does not use TLS; leave the TLS options out"),
    (
        "Failed parsing HTTP/2",
        "what listens there is no gRPC server; it may be the metrics port, give the port of gRPC (--port of "
        "`lingon serve`)",
    ),
    ("Domain name not found", "no such host is known"),
    (r"unix:\S+ error: (.+)$", r"\1"),
)
"""Patterns of gRPC's messages about connections, and what a user should read instead."""

_CLOSED = "connections to all backends failing.*(Socket closed|Connection reset by peer)"


def _refused(server: str, tried: str, start: str) -> str:
    """Return the words for a refused connection; tried: the address of the last attempt, the only one that gRPC
    names.
    """
    if server == tried or server.startswith(("ipv4:", "ipv6:")):
        return f"nothing listens there; {start}, or correct the address"
    return (
        f"nothing listens at {tried}, the last address of this host that was tried; {start}, or give an IP address in "
        "place of the name to see the error of another one"
    )


VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
"""The variables that gRPC reads, in its order, whether a call uses TLS or not."""

EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
"""Variables with hosts, or ends of their names, that need no proxy. GRPC reads the first that is set."""

NO_PROXY = ("grpc.enable_http_proxy", 0)
"""The option of a channel that uses no proxy, whatever the environment says."""


class Proxy(NamedTuple):
    """A proxy of the environment: the variable that names it, and its HOST:PORT."""

    variable: str
    address: str


def proxy_options(target: str) -> tuple[tuple[str, int], ...]:
    """Return the options of a channel to a server: a proxy elsewhere could not reach an address of this machine."""
    return (NO_PROXY,) if is_local(target) else ()


def proxy_of(target: str) -> Proxy | None:
    """Return the proxy through which gRPC calls a server, if a channel may use one, or None without one."""
    if is_local(target) or target.startswith(("unix:", "unix-abstract:", "vsock:")):
        return None
    for variable in VARIABLES:
        if value := os.environ.get(variable):
            address = re.sub(r"^\w+://", "", value).rpartition("@")[2]  # without the password
            return None if _is_excepted(target) else Proxy(variable, address.rstrip("/"))
    return None


def through_proxy(proxy: Proxy) -> str:
    """Return what an error adds for a call that went through a proxy."""
    return (
        f"the call goes through the proxy {proxy.address} that the environment variable {proxy.variable} names; unset "
        "it, or add the host of the server to no_proxy"
    )


def unavailable(server: str, details: str, proxy: Proxy | None, *, tls: bool, start: str = START) -> str:
    """Return why no answer came from a server, see `no_answer`; proxy: through which the call went."""
    if proxy is None:
        return no_answer(server, details, tls=tls, start=start)
    if "Connection refused" in details:
        return f"no answer from {server}: nothing listens at the proxy; {through_proxy(proxy)}"
    return f"{no_answer(server, details, tls=tls, start=start)}; {through_proxy(proxy)}"


def _is_excepted(target: str) -> bool:
    """Return whether a variable says that a server needs no proxy."""
    host = target.removeprefix("dns:").lstrip("/").rpartition(":")[0].strip("[]").lower()
    listed = next((value for name in EXCEPTIONS if (value := os.environ.get(name))), "")
    return any(end == "*" or host.endswith(end) for end in map(str.strip, listed.lower().split(",")) if end)


AUTHORIZATION = "authorization"  # metadata with an API key


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """TLS to a server. All files are PEM. They are read when the client is made.

    ca: certificates of the authorities to trust. Without it those of the system are trusted
    certificate, key: of the client, for a server that asks for them
    server_name: expected name in the server's certificate, if it is not the host that the client connects to
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of a gRPC channel. Raises SettingsError for a file that is missing or wrong."""
        import grpc

        from lingon.pem import check_pair, check_roots

        if (self.certificate is None) != (self.key is None):
            raise SettingsError("a client certificate and its key go together: give both or neither")
        roots = certificate = key = None
        if self.ca is not None:
            roots = read_setting_file(self.ca)
            check_roots(roots, str(self.ca))
        if self.certificate is not None and self.key is not None:
            certificate, key = read_setting_file(self.certificate), read_setting_file(self.key)
            check_pair(certificate, key, str(self.certificate), str(self.key))
        return grpc.ssl_channel_credentials(roots, key, certificate)


def check_encrypted(target: str) -> None:
    """Raise SettingsError if calls to a target without TLS leave this machine, where others could read an API key."""
    if not is_local(target):
        raise SettingsError(
            f"the API key would be sent unencrypted to {target}: turn TLS on (tls=, --tls), or allow it "
            "(insecure=True, --insecure)"
        )


def authorization(api_key: str) -> tuple[str, str]:
    """Return the metadata of an API key. Raises SettingsError, without the key in its message, for an impossible
    key.
    """
    if not re.fullmatch(r"[\x21-\x7e]+", api_key):
        raise SettingsError("the API key is empty, or has spaces or other characters that a key cannot have")
    return AUTHORIZATION, f"Bearer {api_key}"
