#!/usr/bin/env bash
# Guess, written down first: with OTEL_SEMCONV_STABILITY_OPT_IN=rpc the instrumentation of gRPC names its attributes as the
# conventions of its own release do.
#
# Seen with opentelemetry-instrumentation-grpc 0.66b2 and opentelemetry-semantic-conventions 0.66b2, which it installs: the
# variable changes nothing. The spans have rpc.system, rpc.service, rpc.grpc.status_code and net.peer.ip, all of which the
# conventions call deprecated, none of the names that replace them, and the address of a schema of 2022.
#
# Printed: the names and the schema. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check opentelemetry-instrumentation-grpc==0.66b2 opentelemetry-sdk==1.45.2 grpcio==1.85.3
cat > "$folder/spans.py" <<'PYTHON'
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.instrumentation.grpc import server_interceptor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import net_attributes, rpc_attributes
from pathlib import Path

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
server = grpc.server(ThreadPoolExecutor(1), interceptors=[server_interceptor(provider)])
handlers = {"Method": grpc.unary_unary_rpc_method_handler(lambda request, context: b"")}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Service", handlers),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    channel.unary_unary("/Service/Method")(b"")
server.stop(0).wait()
(span,) = spans.get_finished_spans()
names, schema = set(span.attributes), span.instrumentation_scope.schema_url
print(sorted(names), schema)
conventions = "".join(Path(module.__file__).read_text() for module in (net_attributes, rpc_attributes))
old = {"rpc.system", "rpc.service", "rpc.grpc.status_code", "net.peer.ip"}
new = {"rpc.system.name", "rpc.response.status_code"}
advised_against = all(f'"{name}"\n"""\nDeprecated' in conventions for name in old)
raise SystemExit(not (old <= names and not new & names and advised_against and schema.endswith("/1.11.0")))
PYTHON
OTEL_SEMCONV_STABILITY_OPT_IN=rpc "$folder/venv/bin/python" "$folder/spans.py"
