"""`lingon bench decode`: decoding time of all engines. Imports `engines`, `workloads` and the root modules of bench."""
