"""TLS, API keys and quotas; it imports layers of `serving` below it, and no models."""
