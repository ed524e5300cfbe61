"""The load of a benchmark of servers: its jobs, its generator and its latencies. Imports root modules of bench."""
