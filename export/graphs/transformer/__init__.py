"""The graphs of a Transformer; it imports the modules of `graphs` that write graphs, not `precisions`."""
