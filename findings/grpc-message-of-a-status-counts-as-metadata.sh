#!/usr/bin/env bash
# Guess, written down first: the limits of gRPC on metadata (8 KiB soft, 16 KiB hard) concern the metadata that a program
# sets. The message of a status may have any length that a message of gRPC may have.
#
# Seen with grpcio 1.85.3: the message travels in the trailing metadata, percent-encoded, so that a character of CJK takes
# 9 bytes. From 8 KiB on a part of the calls, growing with the length, ends with RESOURCE_EXHAUSTED in the client in place
# of the status that the server set, and above 16 KiB all do. The same number of letters of ASCII is no trouble.
#
# Printed: the statuses of 60 calls for each message. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check grpcio==1.85.3
cat > "$folder/statuses.py" <<'PYTHON'
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc


def statuses(message: str) -> Counter[str]:
    """Return the statuses that a client sees of 60 calls, which a server ends with INVALID_ARGUMENT and this message."""

    def call(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)

    handlers = {"Method": grpc.unary_unary_rpc_method_handler(call)}
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Service", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    found: Counter[str] = Counter()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(60):
            try:
                channel.unary_unary("/Service/Method")(b"")
            except grpc.RpcError as error:
                found[error.code().name] += 1
    server.stop(0)
    return found


short, ascii_only, middle, long = (statuses(text) for text in ("語" * 600, "a" * 1900, "語" * 1400, "語" * 1900))
print(f"600 characters of CJK: {dict(short)}")
print(f"1,900 letters: {dict(ascii_only)}")
print(f"1,400 characters of CJK: {dict(middle)}")
print(f"1,900 characters of CJK: {dict(long)}")
fine = {"INVALID_ARGUMENT": 60}
raise SystemExit(not (short == ascii_only == fine and len(middle) == 2 and long == {"RESOURCE_EXHAUSTED": 60}))
PYTHON
"$folder/venv/bin/python" "$folder/statuses.py"
