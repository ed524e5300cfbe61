"""From the output of the engine to reply messages; it imports of `serving.translation` only `planning`."""
