"""Glossaries and translation memories on disk, by owner. Imports `threads` of `serving`, and no models."""
