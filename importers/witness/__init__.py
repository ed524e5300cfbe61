"""An imported model must find what its own toolkit finds. Imports of importers `readers`, `source` and `files`."""
