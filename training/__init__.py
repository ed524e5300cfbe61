"""Training in PyTorch: text, models, the training loop, checkpoints; it imports neither `serving` nor ONNX."""
