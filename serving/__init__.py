"""The server. Who imports any of it imports an ONNX Runtime that keeps to itself."""

import os

# onnxruntime 1.31 reports its use to its maker, and writes into the home and the temporary folder, from its import on.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
