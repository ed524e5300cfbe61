"""The options of the commands of `lingon bench`, a module for each command. Imports nothing of bench."""
