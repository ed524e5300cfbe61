"""The queue, the scheduler and the worker threads; it imports of `serving` only `decoding` and `runtime`."""
