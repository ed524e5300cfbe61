"""Logs, metrics, traces and the HTTP port for operators; it imports of `serving` only `engine` and layers below."""
