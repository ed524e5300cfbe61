"""Texts as segments to translate, and back; it imports of `lingon` only `errors`, `sentences` and `text`."""
