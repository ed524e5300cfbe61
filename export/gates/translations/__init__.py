"""The gates that translate sentences, or read translations; of the other gates they import the reference only."""
