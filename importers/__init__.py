"""Reads models of other toolkits into checkpoints of Lingon. It imports lingon, training and export."""
