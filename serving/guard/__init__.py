"""Judges translations by their text and tokens, without a model; imports only the codes of the messages."""
