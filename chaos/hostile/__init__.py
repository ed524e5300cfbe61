"""What the hostile cases share: requests that are legal and dear, their callers, probes, and a model of full size."""
