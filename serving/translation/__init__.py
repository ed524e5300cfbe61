"""From texts to reply messages, without gRPC; it imports of `serving` only `observability` and layers below."""
