"""HTTP requests and their errors, the same for every API; it imports of the gateway only `backend`."""
