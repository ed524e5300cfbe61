"""`lingon bench gpu`: decoding on a card. Imports `decode`, `roofline`, what those import, and root modules."""
