"""Judges translations by text, tokens and log-probabilities, without a model; imports lingon.bundle and messages."""
