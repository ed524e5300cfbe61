"""Version 1 of the translation API, generated from protos/."""
