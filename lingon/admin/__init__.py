"""The generated code of the admin API."""
