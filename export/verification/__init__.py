"""Checks a published bundle where it will be served; imports `serving` and those modules of `export` without torch."""
