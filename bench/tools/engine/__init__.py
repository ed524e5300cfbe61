"""Times of the engine and its parts, without a server. Imports `engines`, `workloads`, root modules, and `serving`."""
