"""`lingon bench train`: speed of training loops. Imports `workloads` and the root modules of bench."""
