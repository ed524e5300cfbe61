"""TLS, API keys and quotas; it imports of `serving` only `settings` and `observability`, and knows no models."""
