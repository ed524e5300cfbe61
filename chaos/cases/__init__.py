"""The cases, one file for each section of docs/explanation/reliability.md; chaos.selection collects every file here."""
