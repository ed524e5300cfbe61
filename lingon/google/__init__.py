"""Google Cloud Translation: its messages, generated from protos/, and its codes of languages."""
