"""The generated code of the translation API."""
