"""Benchmarks of decoding, serving and training against other software. May import all of lingon."""
