"""Parts of a text that a translation keeps as they are; it imports only `text` and `segments.boundaries`."""
