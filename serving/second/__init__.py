"""The second translator: a server of another kind that is asked about doubtful sentences. It imports no engine."""
