"""The graphs of the recurrent systems; it imports the modules of `graphs` that write graphs, not `precisions`."""
