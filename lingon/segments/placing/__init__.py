"""The inline tags of a text put into its translation by a word alignment; it imports nothing of `lingon`."""
