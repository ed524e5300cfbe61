"""Decoder states in main memory, and the shortlist; imports `lingon.bundle` and modules of `lingon.serving.runtime`."""
