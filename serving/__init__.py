"""The server: from a bundle to translations over gRPC. Imports neither `training` nor torch."""
