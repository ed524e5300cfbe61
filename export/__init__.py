"""From a checkpoint to a verified ONNX bundle. It imports `training` and `serving`."""
