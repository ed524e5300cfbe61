"""The reliability tests: faults and load on a real server. May import all of `lingon`; nothing imports it."""
