"""Sessions of ONNX Runtime; imports of `lingon` only `errors`, and of `serving.runtime` only `device` and `kernels`."""
