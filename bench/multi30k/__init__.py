"""`lingon bench multi30k`: a published result, trained and measured. Imports `training` and root modules of bench."""
