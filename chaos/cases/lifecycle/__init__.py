"""Cases about starts, stops, reloads, failures and what surrounds a server."""
