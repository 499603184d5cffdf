"""What a client may ask: a package for each group of commands, as Redis names them."""
