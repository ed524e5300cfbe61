"""Tags, text and character references of HTML and XML; it imports of `lingon` only `errors` and the rules beside it."""
