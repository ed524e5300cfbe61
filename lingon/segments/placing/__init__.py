"""The inline tags of a text put into its translation by a word alignment; it imports nothing of `lingon`."""

from lingon.segments.placing.inlines import Aligned, Inline, Insertion, Kept, needs_weights
from lingon.segments.placing.place import place

__all__ = ["Aligned", "Inline", "Insertion", "Kept", "needs_weights", "place"]
