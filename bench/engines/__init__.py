"""Decoding engines behind one interface. Imports nothing else of bench."""
