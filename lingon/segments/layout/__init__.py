"""What a line is made of besides sentences: cells, marks of lists and separators; it imports only `boundaries`."""
