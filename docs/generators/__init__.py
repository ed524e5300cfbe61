"""The parts of pages that are generated from the code: no network, no torch."""
