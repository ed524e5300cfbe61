"""Scripts for measurements that are not commands; each runs with `python -m`. Imports the root modules of bench."""
