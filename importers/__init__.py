"""Reads models of other toolkits into checkpoints of Lingon; it imports lingon, training and export."""
