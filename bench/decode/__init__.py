"""`lingon bench decode`: decoding time of all engines. Imports `engines`, `workloads`, `roofline` and root modules."""
