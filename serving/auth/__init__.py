"""TLS, API keys and quotas; of `serving` it imports `settings`, `observability` and `translation`, and no models."""
