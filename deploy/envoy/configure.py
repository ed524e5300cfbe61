"""Print envoy.yaml for a list of servers.

    python deploy/envoy/configure.py HOST:PORT... > envoy.yaml

Outside of Kubernetes and Compose a proxy knows no name of all servers. This script needs no packages.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
SERVER = "{address: lingon, port_value: 50051}"
CALLS, ADMIN = "{address: 0.0.0.0, port_value: 10000}", "{address: 0.0.0.0, port_value: 9901}"
DESCRIPTORS = "/etc/envoy/lingon.binpb"


def configured(servers: Sequence[str], host: str = "127.0.0.1", port: int = 10000, admin_port: int = 9901) -> str:
    """Return envoy.yaml for these servers, each HOST:PORT, with the descriptor set beside this file.

    host: address that the proxy listens on. The admin port is for this machine only
    """
    text = (HERE / "envoy.yaml").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines(keepends=True) if SERVER in line)
    endpoints = "".join(line.replace(SERVER, _socket(server)) for server in servers)
    changes = {
        line: endpoints,
        CALLS: _address(host, port),
        ADMIN: _address("127.0.0.1", admin_port),
        DESCRIPTORS: str(HERE / "lingon.binpb"),
    }
    for old, new in changes.items():
        assert text.count(old) == 1, f"envoy.yaml must have {old} once"
        text = text.replace(old, new)
    return text


def _socket(server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise SystemExit(f"lingon: error: server {server}: give HOST:PORT, such as 127.0.0.1:50051")
    return _address(host.strip("[]"), int(port))


def _address(host: str, port: int) -> str:
    return f'{{address: "{host}", port_value: {port}}}'


def main() -> None:
    """Print the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("servers", nargs="+", metavar="HOST:PORT", help="gRPC address of a server")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=10000, help="port of the calls (default: 10000)")
    parser.add_argument("--admin-port", type=int, default=9901, help="port of metrics and /ready (default: 9901)")
    given = parser.parse_args()
    sys.stdout.write(configured(given.servers, given.host, given.port, given.admin_port))


if __name__ == "__main__":
    main()
