"""Graphs of our own operators (`kernels/`): products of 8-bit integers whose rows have scales of their own."""
