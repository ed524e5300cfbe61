"""The decoding steps of a running batch, without threads or queues; imports `serving.runtime` and `.constraints`."""
