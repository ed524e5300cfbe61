"""Lower bounds of decoding times, from the peak rates of machine and device. Imports `engines` and root modules."""
