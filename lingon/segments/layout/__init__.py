"""What a line is made of besides sentences: cells, marks of lists and separators; it imports only `boundaries`."""

from lingon.segments.layout.cells import cells_of
from lingon.segments.layout.marks import after_dash

__all__ = ["after_dash", "cells_of"]
