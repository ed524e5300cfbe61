"""Lines in, lines out: the work of the verbs that read many texts; may import lingon.cli.options and lingon.client."""
