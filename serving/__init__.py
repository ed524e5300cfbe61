"""The server: from a bundle to translations over gRPC; it imports neither `training` nor torch."""
