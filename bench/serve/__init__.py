"""`lingon bench serve`: latency and goodput of servers. Imports `engines`, `workloads` and root modules of bench."""
