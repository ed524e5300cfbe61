"""Training in PyTorch: from a parallel corpus to a checkpoint."""
