"""Attention compared: systems trained alike, and the costs of single layers."""
