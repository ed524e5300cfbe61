"""What reads the files of each form of model. Imports of importers only fields, tensors, pieces and source."""
