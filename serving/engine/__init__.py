"""The queue, the scheduler and the worker threads. Imports only `decoding` and `runtime` of `serving`."""
