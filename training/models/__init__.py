"""The models, their interface and their loss; it imports of `training` only the settings."""
