"""Clients of every kind that load a server: gRPC, HTTP, crashing ones, h2load; of chaos imports server and verdict."""
