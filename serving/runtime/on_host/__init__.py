"""Decoder states in main memory; imports `lingon.bundle` and modules of `lingon.serving.runtime`."""
