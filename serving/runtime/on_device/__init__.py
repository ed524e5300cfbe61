"""Decoder states that stay on the device; imports `lingon.bundle` and modules of `lingon.serving.runtime`."""
