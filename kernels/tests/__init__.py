"""Tests of the native operators in C++, which need neither ONNX Runtime nor Python while they run."""
