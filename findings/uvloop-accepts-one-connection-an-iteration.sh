#!/usr/bin/env bash
# Guess, written down first: when many connections wait at a listening socket, a server of uvloop takes all of them in one
# iteration of the event loop, as the loop of asyncio does.
#
# Seen with uvloop 0.23.0 (libuv inside of it) and Python 3.11, on Linux: uvloop takes one connection in an iteration.
# Each iteration in which other work takes 20 ms delays every connection that waits by these 20 ms: the 50th of 50
# connections waits for a second. The loop of asyncio takes all 50 in one iteration.
#
# Printed: "asyncio: 50 connections in at most N iterations", "uvloop: ...". Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check uvloop==0.23.0
cat > "$folder/accepts.py" <<'PYTHON'
import asyncio
import socket
import time

import uvloop

CONNECTIONS = 50


async def iterations() -> int:
    """Return in how many iterations of the event loop the server takes connections that are all there at once."""
    loop = asyncio.get_running_loop()
    now, taken = 0, []

    def work() -> None:
        nonlocal now
        now += 1
        time.sleep(0.02)  # what a request may compute in one iteration
        if len(taken) < CONNECTIONS and now < 1000:
            loop.call_soon(work)

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            taken.append(now)

    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    clients = [socket.create_connection(listening.getsockname()) for _ in range(CONNECTIONS)]
    server = await loop.create_server(Protocol, sock=listening)
    loop.call_soon(work)
    while len(taken) < CONNECTIONS:
        await asyncio.sleep(0.01)
    for client in clients:
        client.close()
    server.close()
    return len(set(taken))


plain = asyncio.run(iterations())
fast = uvloop.run(iterations())
print(f"asyncio: {CONNECTIONS} connections in {plain} iterations")
print(f"uvloop: {CONNECTIONS} connections in {fast} iterations")
raise SystemExit(not (plain <= 3 and fast >= CONNECTIONS - 5))
PYTHON
"$folder/venv/bin/python" "$folder/accepts.py"
