"""Training in PyTorch: text, models, the training loop, checkpoints. It imports neither `serving` nor ONNX."""
