"""What HTML and XML are made of: tags, text and character references; it imports of `lingon` only `errors` and rules."""
