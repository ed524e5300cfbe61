"""Markdown: text is translated, code, addresses and HTML stay; imports `markdown_it`, and `documents` as others do."""
