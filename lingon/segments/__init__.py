"""Texts as segments to translate, and back. It imports of `lingon` only `errors`, `sentences` and `text`."""
