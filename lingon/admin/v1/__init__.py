"""Version 1 of the admin API, generated from protos/."""
