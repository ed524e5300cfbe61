"""Other toolkits as witnesses: a model that Lingon imports must generate the tokens that they generate."""
