"""The `lingon` command and the verbs of the base install. Imports the root modules, `bundle` and `client`."""
