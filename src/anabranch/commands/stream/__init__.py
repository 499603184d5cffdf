"""Commands on streams, whose names begin with X."""
