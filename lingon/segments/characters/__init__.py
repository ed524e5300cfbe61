"""Characters that a model cannot read: what it reads in their place, and what is kept; imports only `protection`."""
