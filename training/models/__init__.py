"""The models and their loss; it imports of `training` only the settings."""
