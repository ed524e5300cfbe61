"""What decoding decides: the rules of a request, choices, running batches. It has no threads and no queues.

It imports of `serving` only `runtime` and `guard`.
"""
