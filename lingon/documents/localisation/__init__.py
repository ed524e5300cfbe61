"""Localisation files that are keys and texts; imports what is in `documents` beside packages."""
