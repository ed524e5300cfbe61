"""The cases, one file for each section of docs/explanation/reliability.md; chaos.case collects every file here."""
