"""Texts as segments to translate, and back. It imports only the modules at the root of `lingon`."""
