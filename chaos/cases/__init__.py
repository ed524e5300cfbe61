"""The cases by the sections of RELIABILITY.md, one file each: a new file is found by itself."""
