"""Live translation, measured: quality against lag, CPU time, and many speakers. It imports bench.serve."""
