"""Decoding engines behind one interface. Imports `worker_process`."""
