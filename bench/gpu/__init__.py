"""`lingon bench gpu`: decoding on a card. Imports `decode`, `engines`, `workloads` and the root modules of bench."""
