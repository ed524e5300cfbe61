"""How protected strings and sentences in capitals are translated; it imports `bench` helpers and the text layer."""
