"""The decisions of decoding: the rules of a request, choices, running batches. It has no threads and no queues.

It imports only `runtime` and `guard` of `serving`.
"""
