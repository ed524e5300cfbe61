"""The client of a server: `Client`, `AsyncClient` and `ModelsClient`. Imports only the root modules of `lingon`."""
