"""What reads the files of each form of model. Imports of importers only files and foreign_model."""
