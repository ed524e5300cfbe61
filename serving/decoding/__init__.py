"""The decoding steps of a running batch, without threads or queues; it imports of `serving` only `runtime`."""
