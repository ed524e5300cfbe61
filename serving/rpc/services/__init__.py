"""The gRPC services: translation, Google's, health, administration of models. Imports of `rpc` `calls` and `ports`."""
