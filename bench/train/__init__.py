"""`lingon bench train`: speed of training loops. Imports `workloads`, `roofline` and the root modules of bench."""
