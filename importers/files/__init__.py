"""What the files of any toolkit are read with: JSON fields, vocabularies, tensors. Imports nothing of importers."""
