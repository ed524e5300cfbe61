"""What a bundle knows about texts, measured at export; it imports nothing of `export`."""
