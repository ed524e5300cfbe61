"""The benchmarks of decoding, serving and training; they may import every other package of `lingon`."""

import lingon.serving.runtime  # noqa: F401  # Turns ONNX Runtime's telemetry off before any benchmark imports it.
