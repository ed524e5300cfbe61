"""The ONNX graphs of a model in every precision. It imports the models of `training` and nothing else of `export`."""
