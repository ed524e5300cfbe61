"""An imported model must find what its own toolkit finds. Imports of importers readers, foreign_model and files."""
