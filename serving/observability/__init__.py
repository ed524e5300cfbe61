"""Logs, metrics, traces and the HTTP port for operators. Imports only `engine` of `serving`, and layers below it."""
