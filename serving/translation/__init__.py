"""From texts to reply messages, without gRPC. Imports only `observability` of `serving`, and layers below it."""
