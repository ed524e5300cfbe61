"""Options that several verbs share, and those of `translate`; may import lingon.client and the root modules."""
