"""Options that several verbs share, or one verb of `lingon.cli` has; may import lingon.client and the root modules."""
