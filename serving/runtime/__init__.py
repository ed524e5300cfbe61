"""A model on ONNX Runtime. Imports only `threads` of `serving`. Importing it turns the runtime's telemetry off."""

import os

# Once imported, onnxruntime 1.31 sends usage data to its vendor and writes files into the home and temporary folders.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
