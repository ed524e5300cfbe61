"""The gRPC services, interceptors and ports; it imports any package of `serving`, but not `server` or a command."""
