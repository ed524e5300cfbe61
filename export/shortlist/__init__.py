"""The vocabulary shortlist, learned from parallel text; it imports nothing else of `export`."""
