"""How good translations are, and what adds to it. Imports the root modules of bench, and `serving`."""
