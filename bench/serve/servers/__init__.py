"""Servers as child processes, and the engine alone. Imports `serve.plan`, `engines` and the root modules of bench."""
