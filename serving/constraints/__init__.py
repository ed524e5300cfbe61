"""Which tokens may continue a translation: words, n-grams, lengths and valid UTF-8; it knows no model and no batch."""
