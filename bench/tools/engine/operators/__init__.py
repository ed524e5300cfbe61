"""Operators of a decoder step, one by one, on a device. Imports the root modules of bench, `export` and `serving`."""
