"""The messages of Google Cloud Translation, generated from protos/."""
