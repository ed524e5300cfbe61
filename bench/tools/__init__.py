"""Scripts for measurements that are not commands; each runs with `python -m`. Imports what is below it in bench."""
