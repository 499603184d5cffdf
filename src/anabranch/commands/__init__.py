"""What a client may ask: one family per file, functions first, table rows last."""
