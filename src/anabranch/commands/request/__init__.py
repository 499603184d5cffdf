"""Reading a request: the form of a row, arguments, keys, error texts, HELP."""
