"""Version 3 of the messages of Google Cloud Translation, generated from protos/."""
