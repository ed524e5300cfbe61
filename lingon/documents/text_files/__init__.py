"""Documents that are files of text; imports what is in `documents` beside packages."""
