"""The APIs: each maps its names to requests of the server and back. It imports the packages beside it."""
