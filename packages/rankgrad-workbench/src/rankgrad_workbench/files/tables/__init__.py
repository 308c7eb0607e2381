"""Tables: files of rows are read here and nowhere else, and written."""
