"""A gRPC server for CTranslate2 with dynamic batching. Imports `engines`."""
