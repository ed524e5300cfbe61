"""HTML and XML as blocks of text with inline tags, and back; it imports of `lingon` only `errors` and `segments`."""
