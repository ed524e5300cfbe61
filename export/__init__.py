"""From a checkpoint to a verified ONNX bundle; it imports `training` and `serving`."""
