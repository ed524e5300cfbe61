"""Commands that run to an end: a training, an import, a bulk run. Imports `tools.engine`, `workloads`, root modules."""
