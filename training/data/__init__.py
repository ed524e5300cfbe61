"""From files of parallel text to batches of token ids; it imports of `training` only the settings."""
