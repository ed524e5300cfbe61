"""Bundles and sentences to translate. Imports nothing else of bench."""
