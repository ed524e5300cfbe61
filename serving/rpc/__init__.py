"""The gRPC services, interceptors and ports. Imports any package of `serving`, but not `server` or a command."""
