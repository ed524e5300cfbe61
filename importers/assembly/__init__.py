"""A checkpoint of what a reader found, in chosen languages and pieces. Imports of importers `source` and `files`."""
