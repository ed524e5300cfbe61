"""Scripts for measurements that are not commands, each for `python -m`. May import the modules of bench below it."""
