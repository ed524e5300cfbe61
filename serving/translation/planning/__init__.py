"""From the messages of a request to what the engine decodes; pure, but for pauses that let other requests run."""
