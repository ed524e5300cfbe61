"""Cases about callers whose requests are legal and cost much; of the other cases imports load."""
