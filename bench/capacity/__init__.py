"""How many requests some servers answer: one is measured, many are simulated; it imports `bench` helpers alone."""
