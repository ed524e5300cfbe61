"""The models, their interface and their loss. It imports of `training` only the settings."""
