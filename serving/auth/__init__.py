"""TLS, API keys and quotas. Imports layers of `serving` below it, and no models."""
