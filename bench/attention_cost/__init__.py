"""`lingon bench attention-cost`: costs of sequence layers. Imports `training` and the root modules of bench."""
