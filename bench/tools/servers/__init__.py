"""Measurements of running servers, by their APIs. Imports `workloads` and the root modules of bench."""
