"""Whether strings that are kept stay whole, and tags around them, in all arrangements; it imports `bench` helpers."""
