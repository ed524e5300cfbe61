"""Characters that a model cannot read: what it reads in their place, and what is kept; imports only `protection`."""

from lingon.segments.characters.alphabet import Alphabet
from lingon.segments.characters.read import read_characters
from lingon.segments.characters.reading import Reading

__all__ = ["Alphabet", "Reading", "read_characters"]
