"""Calls until their handlers start; of `rpc` it imports `calls` only."""
