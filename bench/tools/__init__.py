"""Scripts for measurements that are no command; each runs with `python -m`. Imports the root modules of bench."""
