#!/usr/bin/env bash
# Guess, written down first: a method that reads a stream of requests sees the end of the stream only if the client ended it.
# If the client cancels the call or goes away in the middle, reading raises CancelledError, or the method is cancelled
# before the loop ends.
#
# Seen with grpcio 1.85.3: the loop over the requests ends as it does after the last message, in all calls or nearly all
# with the asyncio server, and in a quarter to a third with the synchronous one. A method that then stores what it has
# stores a part of an upload as a whole one. A cancellation that the method sees comes later, if at all.
#
# Printed: how 200 calls ended for the method of each server; the client cancelled each after two messages, without an
# end. Exits with 1 if no call looks complete any more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check grpcio==1.85.3
cat > "$folder/uploads.py" <<'PYTHON'
import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

CALLS = 200


async def with_asyncio() -> Counter[str]:
    """Return how calls ended for a method of the asyncio server."""
    found, arrived, ended = Counter[str](), asyncio.Event(), asyncio.Event()

    async def upload(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> bytes:
        count = 0
        try:
            async for _ in requests:
                count += 1
                if count == 2:
                    arrived.set()
            found["looks complete"] += 1
        except asyncio.CancelledError:
            found["cancelled"] += 1
            raise
        finally:
            ended.set()
        return b""

    server = grpc.aio.server()
    handlers = {"Upload": grpc.stream_unary_rpc_method_handler(upload)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(CALLS):
            arrived.clear(), ended.clear()
            call = channel.stream_unary("/Service/Upload")()
            await call.write(b"first")
            await call.write(b"second")
            await arrived.wait()
            call.cancel()
            await ended.wait()
    await server.stop(0)
    return found


def with_threads() -> Counter[str]:
    """Return how calls ended for a method of the synchronous server."""
    found, arrived, ended = Counter[str](), threading.Event(), threading.Event()

    def upload(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        try:
            for count, _ in enumerate(requests):
                if count == 1:
                    arrived.set()
            found["looks complete"] += 1
        except Exception:
            found["cancelled"] += 1
            raise
        finally:
            ended.set()
        return b""

    server = grpc.server(ThreadPoolExecutor(1))
    handlers = {"Upload": grpc.stream_unary_rpc_method_handler(upload)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(CALLS):
            arrived.clear(), ended.clear()
            more = threading.Event()

            def messages(more: threading.Event = more) -> Iterator[bytes]:
                yield from (b"first", b"second")
                more.wait()

            call = channel.stream_unary("/Service/Upload").future(messages())
            arrived.wait()
            call.cancel()
            ended.wait()
            more.set()
    server.stop(0)
    return found


asynchronous, synchronous = asyncio.run(with_asyncio()), with_threads()
print(f"asyncio: {dict(asynchronous)}")
print(f"threads: {dict(synchronous)}")
raise SystemExit(not (asynchronous["looks complete"] and synchronous["looks complete"]))
PYTHON
"$folder/venv/bin/python" "$folder/uploads.py" 2>/dev/null
