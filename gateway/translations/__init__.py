"""Texts and files of any API to requests of the server, and their results; it imports of the gateway `requests`."""
