"""The bundle: what an export writes and a server reads. Imports only the root modules of `lingon`."""
