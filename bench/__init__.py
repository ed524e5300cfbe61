"""Benchmarks of decoding, serving and training against other software. May import all of lingon."""

# Some benchmarks import onnxruntime themselves: this turns its telemetry off first.
import lingon.serving.runtime as _  # noqa: F401
