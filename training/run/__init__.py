"""One training run: its setup, its loop, its processes and its report; only the verbs import it."""
