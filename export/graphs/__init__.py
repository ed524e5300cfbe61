"""The ONNX graphs of a model in every precision; it imports the models of `training` and nothing else of `export`."""
