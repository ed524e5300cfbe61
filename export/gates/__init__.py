"""The checks that a bundle passes before it is published; it imports the graphs, `serving` and the reference search."""
