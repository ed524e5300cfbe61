"""The bare decode loop in PyTorch, the strong baseline on a card. Imports `base`, `batches` and `conversion`."""
