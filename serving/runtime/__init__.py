"""A model on ONNX Runtime; it imports of `serving` only `threads`. Importing it turns the runtime's telemetry off."""

import os

# Once imported, onnxruntime 1.31 reports its use to its maker and writes files into the home and temporary folders.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
